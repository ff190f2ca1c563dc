"""Check hookviz on every torchvision model and a model of each timm family."""
