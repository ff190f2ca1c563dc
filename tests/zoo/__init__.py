"""Check hookviz and its rivals on every torchvision model and a model of each timm family."""
