"""The classes of all results: what each function of hookviz returns."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "hookviz",
    submod_attrs={
        "attribution.attention": ["Attention"],
        "export.lesson": ["Grades"],
        "hooking.records": ["Call", "CapturedTensor", "FeatureCache", "LayerRecord", "Statistics"],
        "studies.compare.comparison": ["Comparison"],
        "studies.compare.difference": ["HeadDifference", "LayerDifference"],
        "studies.compare.similarity": ["Similarity"],
        "studies.diagnosis.findings": ["Diagnosis", "Finding"],
        "studies.graph.contributions": ["Contributions"],
        "studies.graph.graph": ["Graph"],
        "studies.graph.provenance": ["Node"],
        "studies.hook_table": ["HookInfo", "HookTable", "RemovedHooks"],
        "studies.kernels": ["LayerWeights"],
        "studies.receptive_field.field": ["ReceptiveField"],
        "studies.survey.channels": ["LayerSurvey"],
        "studies.survey.survey": ["Survey"],
        "studies.trace.events": ["Event"],
        "studies.trace.trace": ["Trace"],
        "studies.watch.training": ["Training"],
        "studies.watch.watch": ["Watch"],
        "view.pins": ["Pin", "Pins"],
    },
)
