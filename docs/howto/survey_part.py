"""Surveys one part of a folder; torchrun starts this file in several processes."""

import os

import hookviz

part, parts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
model = hookviz.demo_model()
survey = hookviz.survey(model, "pictures", "layer3.*", batch_size=8, shard=(part, parts))
survey.save(f"part-{part}-of-{parts}.npz")
