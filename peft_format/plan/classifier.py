"""Plans for heads of classifiers: PEFT trains them in full, and saves them as modules_to_save."""

from dataclasses import replace

from loragate.peft_format.classification import Classifier, default_labels
from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import in_config, in_tensor
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan import tensor_names as keys
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule
from loragate.peft_format.plan.plan import AdapterPlan, ClassifierPlan
from loragate.peft_format.plan.servable import require
from loragate.peft_format.safetensors.header import Header

_FIELD = "task_type"


def classifier_layout(config: LoraConfig, header: Header, layout: BaseLayout) -> BaseLayout:
    """Return the layout of transformers' class for the config's task: this base model with another head.

    The number of labels is that of the rows in the file. Raise AdapterRejected.
    """
    if config.task_type is None:
        return layout
    require(AdapterKind.CLASSIFIER, layout, _FIELD)
    head = layout.classifier_heads.get(config.task_type)
    if head is None:
        raise in_config(
            _FIELD,
            f'{_FIELD} is "{config.task_type}", but transformers has no class for it that could be served on this '
            f"{layout.model_type} model.",
        )
    labels = _rows(f"{head.name}.weight", config, header)
    if config.id2label and len(config.id2label) != labels:
        raise in_config("id2label", f"id2label has {len(config.id2label)} labels, but the head has {labels} outputs.")
    before = layout.output_head
    modules = {name: module for name, module in layout.modules.items() if module is not before}
    modules[head.name] = TargetModule(head.name, ModuleKind.LINEAR, head.in_features, labels, bias=head.bias)
    return replace(layout, modules=modules, head="", tied_embeddings=False)


def split_classifier(plan: AdapterPlan, config: LoraConfig, layout: BaseLayout) -> AdapterPlan:
    """Move the head from the plan's replaced modules to its classifier. Raise AdapterRejected if it is not there."""
    if config.task_type is None:
        return plan
    name = layout.classifier_heads[config.task_type].name
    head = plan.replaced.get(name)
    if head is None:
        raise in_config("modules_to_save", f'modules_to_save does not name the head, "{name}"; train and save it.')
    labels = config.id2label or default_labels(head.module.out_features)
    return replace(
        plan,
        replaced={path: module for path, module in plan.replaced.items() if path != name},
        classifier=ClassifierPlan(Classifier(config.task_type, labels, config.problem_type), head),
    )


def _rows(path: str, config: LoraConfig, header: Header) -> int:
    name = keys.parameter(path)
    spec = header.tensors.get(name)
    if spec is None:
        raise in_tensor(name, f'The tensor "{name}" is missing, though task_type is "{config.task_type}".')
    if len(spec.shape) != 2 or not spec.shape[0]:
        raise in_tensor(name, f'The tensor "{name}" has the shape {list(spec.shape)}; a head is [labels, hidden size].')
    return spec.shape[0]
