"""Libraries for sound: 1d convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from .cases import Foreign
from .pictures import _of


def cases() -> Iterator[Foreign]:
    """Yield all models of this file; all of these libraries need torchaudio."""
    yield Foreign(
        "torchaudio/ConvTasNet",
        (1, 1, 800),
        _of(
            "torchaudio.models",
            "ConvTasNet",
            enc_num_feats=16,
            msk_num_feats=8,
            msk_num_hidden_feats=16,
        ),
    )
    yield Foreign(
        "speechbrain/EcapaTdnn",
        (1, 50, 20),
        _of(
            "speechbrain.lobes.models.ECAPA_TDNN",
            "ECAPA_TDNN",
            input_size=20,
            channels=[16] * 5,
            lin_neurons=8,
        ),
    )
    yield Foreign("encodec/SEANetEncoder", (1, 1, 1280), _of("encodec.modules", "SEANetEncoder"))
