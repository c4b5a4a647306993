"""Exports networks of PyTorch, with random weights and sensible activations.

    python benches/zoo_models/exports.py FOLDER NETWORK-EXPORTER-OPSET...

as in ``resnet18-dynamo-18``; the other exporter is ``torchscript``. Needs torch, torchvision, timm,
transformers and onnxscript, but not qc. Weights are drawn from a seed. Networks with BatchNorm see some
inputs in training first, so that its statistics are those of what comes in and activations stay of the
order of one.
"""

from __future__ import annotations

import random
import sys
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from feeds import Content
from torch import Tensor, nn

if torch.version.cuda is None:  # the torchvision of PyPI is built for CUDA, without which these are missing
    for operator in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float limit) -> Tensor"
        )

import timm
import torchvision

_SEED = 7
_WARMING = 8
_VOCABULARY = 1000
_TEXT: dict[str, Any] = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "max_position_embeddings": 128,
}


class First(nn.Module):
    """A model of transformers that gives back its first result alone."""

    def __init__(self, model: nn.Module, argument: str = "input_ids") -> None:
        super().__init__()
        self.model = model
        self.argument = argument

    def forward(self, x: Tensor) -> Tensor:
        """The hidden states, or the logits."""
        return self.model(**{self.argument: x}, return_dict=False)[0]


def text(name: str, **settings: Any) -> nn.Module:
    """A small text model of transformers, by the name of its classes."""
    config = getattr(transformers, f"{name}Config")(**settings)
    config._attn_implementation = "eager"
    if "use_cache" in config.to_dict():
        config.use_cache = False
    return First(getattr(transformers, f"{name}Model")(config))


def whisper_encoder() -> nn.Module:
    """The encoder of a small Whisper."""
    sizes = {"d_model": 128, "encoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = transformers.WhisperConfig(**sizes, max_source_positions=100, attn_implementation="eager")
    return First(transformers.WhisperModel(config).encoder, "input_features")


def t5_encoder() -> nn.Module:
    """The encoder of a small T5."""
    sizes = {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4}
    return First(transformers.T5EncoderModel(transformers.T5Config(vocab_size=_VOCABULARY, **sizes)))


class Tagger(nn.Module):
    """A label for each word, by a recurrent network in both directions."""

    def __init__(self, recurrent: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(_VOCABULARY, 64)
        self.recurrent = recurrent(64, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(192, 17)

    def forward(self, words: Tensor) -> Tensor:
        """Logits of the labels."""
        return self.head(self.recurrent(self.embed(words))[0])


class Denoiser(nn.Module):
    """Gains for each band of each frame, by two GRUs, as networks that suppress noise have them."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(161, 200), nn.Linear(200, 161)
        self.first, self.second = nn.GRU(200, 200, batch_first=True), nn.GRU(200, 200, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:
        """Gains from 0 to 1."""
        hidden = self.second(self.first(torch.relu(self.into(frames)))[0])[0]
        return torch.sigmoid(self.out(hidden))


def conv_block(inputs: int, outputs: int, dimensions: int = 2, **settings: Any) -> nn.Sequential:
    """A convolution, its BatchNorm, and Relu."""
    conv, norm = (nn.Conv1d, nn.BatchNorm1d) if dimensions == 1 else (nn.Conv2d, nn.BatchNorm2d)
    return nn.Sequential(conv(inputs, outputs, 3, **settings), norm(outputs), nn.ReLU())


class Tcn(nn.Module):
    """Dilated causal convolutions with residuals (Bai et al., arXiv:1803.01271)."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Conv1d(80, 64, 1)
        self.layers = nn.ModuleList(conv_block(64, 64, 1, dilation=2**i) for i in range(6))
        self.out = nn.Conv1d(64, 10, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """Logits for each frame."""
        hidden = self.into(frames)
        for i, layer in enumerate(self.layers):
            hidden = hidden + layer(nn.functional.pad(hidden, (2 * 2**i, 0)))
        return self.out(hidden)


class Unet(nn.Module):
    """Down, up, and across (Ronneberger et al., arXiv:1505.04597)."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        widths = (16, 32, 64, 128)
        pairs = [*zip((3, *widths[:-1]), widths, strict=True)]
        self.down = nn.ModuleList(conv_block(before, after, padding=1) for before, after in pairs)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * width, width, 2, 2)
            if transposed
            else nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2 * width, width, 1))
            for width in widths[:-1]
        )
        self.join = nn.ModuleList(conv_block(2 * width, width, padding=1) for width in widths[:-1])
        self.out = nn.Conv2d(widths[0], 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits for each pixel."""
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = kept.pop()
        for up, join, before in zip(reversed(self.up), reversed(self.join), reversed(kept), strict=True):
            x = join(torch.cat([up(x), before], dim=1))
        return self.out(x)


class Yolo(nn.Module):
    """A detector as YOLO has it since version 5: SiLU, split and concatenated stages, two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = self._conv(3, 32, 2), self._conv(64, 128, 2)
        self.stages = nn.ModuleList([self._conv(32, 64, 2), self._conv(32, 32), self._conv(96, 64)])
        self.lateral, self.join = self._conv(128, 64), self._conv(128, 64)
        self.heads = nn.ModuleList([nn.Conv2d(64, 85, 1), nn.Conv2d(128, 85, 1)])

    @staticmethod
    def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
        conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Boxes and scores of both scales, one after the other."""
        x = self.stages[0](self.stem(x))
        left, right = x.chunk(2, dim=1)
        fine = self.stages[2](torch.cat([left, right, self.stages[1](right)], dim=1))
        coarse = self.deep(fine)
        up = nn.functional.interpolate(self.lateral(coarse), scale_factor=2.0, mode="nearest")
        fine = self.join(torch.cat([up, fine], dim=1))
        maps = [head(one).flatten(2) for head, one in zip(self.heads, (fine, coarse), strict=True)]
        found = torch.cat(maps, dim=2).transpose(1, 2)
        return torch.cat([found[..., :4].exp(), found[..., 4:].sigmoid()], dim=-1)


def face() -> nn.Module:
    """Depthwise convolutions and PReLU, as networks that know faces have (Chen et al., arXiv:1804.07573)."""

    def conv(inputs: int, outputs: int, size: int, **settings: Any) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **settings)
        return [layer, nn.BatchNorm2d(outputs), nn.PReLU(outputs)]

    layers = [*conv(3, 64, 3, stride=2), *conv(64, 64, 3, groups=64), *conv(64, 128, 1)]
    layers += [*conv(128, 128, 3, stride=2, groups=128), *conv(128, 128, 1)]
    layers += [*conv(128, 128, 3, stride=2, groups=128), nn.Conv2d(128, 256, 1), nn.BatchNorm2d(256)]
    return nn.Sequential(*layers, nn.Conv2d(256, 256, 14, groups=256), nn.Flatten(), nn.Linear(256, 128))


class Recommender(nn.Module):
    """Features that are crossed, beside a deep network of them (Wang et al., arXiv:1708.05123)."""

    def __init__(self) -> None:
        super().__init__()
        self.crosses = nn.ModuleList(nn.Linear(40, 40) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.out = nn.Linear(104, 1)

    def forward(self, x: Tensor) -> Tensor:
        """How likely each is."""
        crossed = x
        for cross in self.crosses:
            crossed = x * cross(crossed) + crossed
        return torch.sigmoid(self.out(torch.cat([crossed, self.deep(x)], dim=1)))


def autoencoder() -> nn.Module:
    """Convolutions down and transposed ones up again."""
    down = [conv_block(3, 16, stride=2, padding=1), conv_block(16, 32, stride=2, padding=1)]
    up = [nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Sigmoid()]
    return nn.Sequential(*down, *up)


def generator() -> nn.Module:
    """Noise to picture (Radford et al., arXiv:1511.06434)."""
    widths = (100, 128, 64, 32)
    layers: list[nn.Module] = []
    for i, (before, after) in enumerate(pairwise(widths)):
        conv = nn.ConvTranspose2d(before, after, 4, 2 if i else 1, 1 if i else 0, bias=False)
        layers += [conv, nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1), nn.Tanh())


def seen(name: str, **settings: Any) -> Callable[[], nn.Module]:
    """A network of torchvision for 100 classes."""
    return lambda: torchvision.models.get_model(name, num_classes=100, **settings)


class Segmented(nn.Module):
    """A segmentation network of torchvision without the dictionary around its result."""

    def __init__(self, name: str) -> None:
        super().__init__()
        settings = {"weights": None, "weights_backbone": None, "num_classes": 5}
        self.model = torchvision.models.get_model(name, **settings)

    def forward(self, x: Tensor) -> Tensor:
        """Logits for each pixel."""
        return self.model(x)["out"]


def timed(name: str, **settings: Any) -> Callable[[], nn.Module]:
    """A network of timm for 100 classes."""
    return lambda: timm.create_model(name, pretrained=False, num_classes=100, **settings)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": seen("resnet18"),
    "mobilenetv2": seen("mobilenet_v2"),
    "mobilenetv3": seen("mobilenet_v3_small"),
    "efficientnet": seen("efficientnet_b0"),
    "convnext": timed("convnext_atto"),
    "regnet": seen("regnet_y_400mf"),
    "shufflenet": seen("shufflenet_v2_x0_5"),
    "densenet": timed("densenet121", growth_rate=8),
    "squeezenet": seen("squeezenet1_1"),
    "inception": timed("inception_v3"),
    "swin": timed(
        "swin_tiny_patch4_window7_224",
        img_size=56,
        window_size=7,
        depths=(2, 2),
        num_heads=(3, 6),
        embed_dim=48,
    ),
    "vit": timed("vit_tiny_patch16_224", img_size=96, depth=4),
    "deit": timed("deit_tiny_distilled_patch16_224", img_size=96, depth=4),
    "ghostnet": timed("ghostnet_050"),
    "mobilevit": timed("mobilevit_xxs"),
    "fastvit": timed("fastvit_t8"),
    "lraspp": lambda: Segmented("lraspp_mobilenet_v3_large"),
    "deeplab": lambda: Segmented("deeplabv3_mobilenet_v3_large"),
    "unet": lambda: Unet(transposed=True),
    "unet-bilinear": lambda: Unet(transposed=False),
    "yolo": Yolo,
    "autoencoder": autoencoder,
    "generator": generator,
    "bert": lambda: text("Bert", **_TEXT),
    "albert": lambda: text("Albert", **_TEXT, embedding_size=64),
    "roberta": lambda: text("Roberta", **_TEXT),
    "distilbert": lambda: text(
        "DistilBert", vocab_size=_VOCABULARY, dim=128, n_layers=2, n_heads=4, hidden_dim=256
    ),
    "gpt2": lambda: text("GPT2", vocab_size=_VOCABULARY, n_embd=128, n_layer=2, n_head=4, n_positions=128),
    "llama": lambda: text("Llama", **_TEXT, num_key_value_heads=2),
    "t5-encoder": t5_encoder,
    "whisper-encoder": whisper_encoder,
    "lstm-tagger": lambda: Tagger(nn.LSTM),
    "gru-tagger": lambda: Tagger(nn.GRU),
    "rnn-tagger": lambda: Tagger(nn.RNN),
    "denoiser": Denoiser,
    "face": face,
    "recommender": Recommender,
    "tcn": Tcn,
}


def build(name: str, content: Content) -> tuple[nn.Module, Tensor]:
    """A network with settled statistics, ready for inference, and an input of it."""
    random.seed(_SEED)
    torch.manual_seed(_SEED)
    drawn = np.random.default_rng(_SEED)
    dtype = np.dtype(np.int64 if content.kind == "integers" else np.float32)
    inputs = [torch.from_numpy(content.draw(drawn, dtype)) for _ in range(_WARMING)]
    network = NETWORKS[name]()
    norms = [one for one in network.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    if norms:
        settle(network, norms, torch.cat(inputs))
    return network.eval(), inputs[0]


def settle(network: nn.Module, norms: list[Any], inputs: Tensor) -> None:
    """Gives BatchNorm the statistics of the inputs, and scales and shifts that are uneven."""
    for norm in norms:
        norm.momentum = None
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.2)
        norm.reset_running_stats()
    network.train()
    with torch.no_grad():
        for _ in range(2):
            network(inputs)


def export(network: str, exporter: str, opset: int, content: Content, path: Path) -> None:
    """Writes one export."""
    module, example = build(network, content)
    fresh = path.with_suffix(".part")
    settings: dict[str, Any] = {
        "input_names": ["input"],
        "opset_version": opset,
        "dynamo": exporter == "dynamo",
    }
    with torch.no_grad():
        torch.onnx.export(module, (example,), fresh, external_data=False, verbose=False, **settings)
    fresh.rename(path)


def main(folder: Path, names: list[str]) -> None:
    """Writes the exports of these names into a folder, and says which cannot be made."""
    zoo = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))
    for name in names:
        network, exporter, opset = name.rsplit("-", 2)
        content = Content.parse(zoo["exports"][network]["input"])
        try:
            export(network, exporter, int(opset), content, folder / f"{name}.onnx")
        except Exception as error:  # exporters end in errors of many kinds
            print(f"{name} cannot be exported: {error}".splitlines()[0], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
