"""The command line: pages and surveys from a terminal, with errors in one sentence."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

import hookviz
from hookviz.__main__ import main, model_of


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    hookviz.demo_images()[0].save(path)
    return str(path)


def test_page_writes_a_page_of_the_demo_model(tmp_path, capsys):
    out = tmp_path / "view.html"
    arguments = ["page", "--demo", "-o", str(out), "--layers", "layer3.*", "--title", "Demo"]
    assert main([*arguments, "--target", "fish", "--max-bytes", "2e6"]) == 0
    page = out.read_text(encoding="utf-8")
    assert len(page.encode()) <= 2_000_000
    assert "<title>Demo</title>" in page and '"target":{"name":"fish","number":2,' in page
    output = capsys.readouterr()
    assert output.out == "" and "16 layers" in output.err


BACKBONES = ["fcn_resnet50", "lraspp_mobilenet_v3_large", "keypointrcnn_resnet50_fpn"]


@pytest.mark.parametrize("name", [*BACKBONES, "squeezenet1_1"])
def test_a_model_without_weights_downloads_none(name, monkeypatch):
    def download(*arguments, **options):
        raise AssertionError("nothing is downloaded")

    monkeypatch.setattr("torch.hub.download_url_to_file", download)
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", download)
    monkeypatch.setattr("torchvision.models.WeightsEnum.get_state_dict", download)
    with torch.device("meta"):
        model, weights = model_of(Namespace(model=name, weights="none"))
    assert weights is None and not model.training


def test_page_takes_a_users_function_and_weights(tmp_path, photo, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_nets.py").write_text("import hookviz\nbuild = hookviz.demo_model\n")
    torch.save(hookviz.demo_model().state_dict(), "trained.pt")
    arguments = ["page", "my_nets:build", photo, "--weights", "trained.pt", "--layers", "stem.0"]
    assert main([*arguments, "--target", "3"]) == 0
    assert '"number":3' in (tmp_path / "view.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a model and a picture, or --demo"),
        (["resnet18", "none.jpg"], "missing file 'none.jpg'"),
        (["resnet18", "FOLDER"], "is a folder: give the path of one picture"),
        (["resnet3", "PHOTO"], "close to it: 'resnet34'"),
        (["nowhere:build", "PHOTO"], "nowhere:build cannot be imported"),
        (["os.path:join", "PHOTO"], "hookviz: "),
        (["./nets.py:build", "PHOTO"], "'./nets.py:build' is not package.module:function"),
        (["--demo", "--precision", "int8"], "--precision is that of a page with --network"),
        (["hookviz:demo_images", "PHOTO"], "gave a value of type list, not a model"),
        (["hookviz:demo_model", "PHOTO", "--weights", "no.pt"], "missing file 'no.pt'"),
        (["hookviz:demo_model", "PHOTO", "--weights", "FOLDER"], "folder: give the path of a file"),
        (["hookviz:demo_model", "PHOTO", "--weights", "PHOTO"], "has no weights that can be read"),
        (
            ["hookviz:demo_model", "PHOTO", "--weights", "OTHER"],
            'Missing key(s) in state_dict: "stem.0.weight"',
        ),
        (["timm:convnext_att", "PHOTO", "--weights", "none"], "close to it: 'convnext_atto'"),
        (["--demo", "--layers", "nothing*"], "nothing"),
        (["--demo", "--target", "unicorn"], "No class is called 'unicorn'"),
    ],
)
def test_errors_of_page_are_one_sentence(arguments, message, photo, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"own": torch.zeros(1)}, "other.pt")
    meant = {"PHOTO": photo, "OTHER": "other.pt", "FOLDER": str(tmp_path)}
    assert main(["page", *(meant.get(each, each) for each in arguments)]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("hookviz: ") and message in last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["page", "--demo", "-o", "no/where.html"], "Missing folder 'no'"),
        (["survey", "--demo", "PICTURES", "-o", "no/where.npz"], "Missing folder 'no'"),
        (["page", "--demo", "--max-bytes", "inf"], "max_bytes=inf cannot be used"),
    ],
)
def test_an_impossible_output_is_refused_before_the_model_is_built(
    arguments, message, pictures, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hookviz, "demo_model", None)
    assert main([pictures if each == "PICTURES" else each for each in arguments]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("hookviz: ") and message in line


@pytest.mark.heavy
def test_page_takes_a_timm_model_and_reports_failed_downloads(tmp_path, photo, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    layers = ["--layers", "stages.3.blocks.*.conv_dw"]
    assert main(["page", "timm:convnext_atto", photo, "--weights", "none", *layers]) == 0
    assert "2 layers" in capsys.readouterr().err
    page = (tmp_path / "view.html").read_text(encoding="utf-8")
    assert "×3×224×224" in page and "stages.3.blocks.1.conv_dw" in page

    def no_network(*args, **options):
        raise FileNotFoundError("Name or service not known.\nmore")

    monkeypatch.setattr("timm.create_model", no_network)
    assert main(["page", "timm:convnext_atto", photo]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "timm:convnext_atto could not be downloaded (Name or service not known): " in last
    assert "a network that is available offline: hookviz.demo_model()" in last


def test_help_contains_examples(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["page", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "hookviz page --demo" in text and "timm:convnext_tiny" in text
    assert "--max-bytes" in text and "inputs" in text


def test_errors_in_a_terminal_have_no_traceback(tmp_path):
    command = [sys.executable, "-m", "hookviz", "page", "resnet18", "none.jpg"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.fixture
def pictures(tmp_path):
    for number, picture in enumerate(hookviz.demo_images()[:6]):
        folder = tmp_path / "pictures" / picture.info["label"]
        folder.mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"{number}.png")
    return str(tmp_path / "pictures")


def test_survey_writes_a_file(tmp_path, pictures, capsys):
    out = str(tmp_path / "survey.npz")
    assert main(["survey", "--demo", pictures, "-o", out, "--layers", "stem.0", "-k", "2"]) == 0
    survey = hookviz.load(out)
    assert survey.complete and len(survey["stem.0"].top(3)) == 2
    assert "1 layer, 24 channels, 6 inputs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a model and a folder, or --demo"),
        (["--demo", "nowhere"], "'nowhere' does not exist: give a folder"),
        (["--demo", "pictures/eye/1.png"], "is not a folder: give a folder with pictures"),
        (["--demo", "PICTURES", "--layers", "nothing*"], "nothing*"),
        (["resnet3", "PICTURES", "--weights", "none"], "Unknown model resnet3"),
        (["--demo", "PICTURES", "-k", "0"], "k=0 cannot be used"),
        (["--demo", "PICTURES", "--device", "foo"], "device='foo' cannot be used ("),
        (["--demo", "PICTURES", "--device", "cuda:99"], "device='cuda:99' cannot be used ("),
        (["--demo", "PICTURES", "--shard", "2/2"], "shard=(2, 2) is not a part"),
    ],
)
def test_errors_of_survey_are_one_sentence(
    arguments, message, pictures, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["survey", *(pictures if each == "PICTURES" else each for each in arguments)]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("hookviz: ") and message in last


def test_a_part_in_another_form_is_refused(pictures, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["survey", "--demo", pictures, "--shard", "1"])
    assert "argument --shard: '1' is not I/N, such as 0/2" in capsys.readouterr().err


def test_survey_with_skip_leaves_out_unreadable_pictures(tmp_path, pictures, capsys):
    broken = next(Path(pictures).iterdir()) / "broken.png"
    broken.write_bytes(b"not a picture")
    out = tmp_path / "survey.npz"
    options = ["survey", "--demo", pictures, "-o", str(out), "--layers", "stem.0"]
    assert main(options) == 2 and not out.exists()
    assert "broken.png" in capsys.readouterr().err
    assert main([*options, "--skip", "--workers", "1"]) == 0
    survey = hookviz.load(out)
    assert survey.complete and len(survey.unread) == 1 and survey.seen == 6


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"hookviz {hookviz.__version__}\n"


def test_shards_of_a_survey_add_up_to_the_whole(tmp_path, pictures, capsys):
    options = ["--demo", pictures, "--layers", "stem.0", "--batch-size", "2"]
    parts = []
    for part in range(2):
        out = str(tmp_path / f"part-{part}.npz")
        assert main(["survey", *options, "--shard", f"{part}/2", "-o", out]) == 0
        parts.append(hookviz.load(out))
    assert "2 of 6 inputs (partial)" in capsys.readouterr().err
    assert (parts[1] + parts[0]).complete
