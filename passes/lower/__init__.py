"""Passes that turn the annotated model into something that runs or can be handed on."""
