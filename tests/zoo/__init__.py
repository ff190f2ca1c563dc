"""Every torchvision model and a model of each timm family, hookviz and its rivals."""
