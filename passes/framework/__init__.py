"""The pass framework: passes and their options, pipelines, targets, and what runs them."""
