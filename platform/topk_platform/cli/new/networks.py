"""The network of a study that ``topk new`` writes: of this package, torchvision, timm, or the user."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from difflib import get_close_matches

from topk_platform.errors import UserError, unknown_name
from topk_platform.references import is_reference

__all__ = ["NETWORKS", "NetworkCode", "network_code"]


def _names_of_models() -> tuple[str, ...]:
    """Return the names in the table ``MODELS``, from the source of its module, because importing it loads torch."""
    spec = importlib.util.find_spec("topk_platform.models")
    source = spec.loader.get_source(spec.name) if spec else ""  # type: ignore[union-attr]
    tables = [node.value for node in ast.parse(source).body if isinstance(node, ast.AnnAssign)]
    return tuple(
        ast.literal_eval(key) for table in tables if isinstance(table, ast.Dict) for key in table.keys if key
    )


NETWORKS = tuple(name for name in _names_of_models() if name != "torchvision")
"""The networks of this package that ``topk new`` offers."""

_TIMM = "timm:"

_FUNCTION = """

def network(shape: tuple[int, ...], classes: int, head: str, architecture: str) -> nn.Module:
    body = timm.create_model(architecture, num_classes=0, in_chans=shape[0]{size})
    return nn.Sequential(body, make_head(body.head_hidden_size, classes, head))

"""


@dataclass(frozen=True)
class NetworkCode:
    """The parts of a study file that are about its network.

    Args:
        model: The code of the ``Model``; ``{name}`` stands for the study's name.
        function: The code of a function that builds the network, if it needs one.
        imports: The lines that import from other packages.
        ours: The lines that import from ``topk_platform``.
    """

    model: str
    function: str = ""
    imports: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()


def network_code(network: str) -> NetworkCode:
    """Return the code of a network.

    Args:
        network: One of :data:`NETWORKS`, the name of a torchvision classifier, ``timm:NAME`` for a timm network, or
            ``module:function`` for a function of the user. The study file gets a function that builds a timm network.

    Raises:
        UserError: if there is no such network, timm is not installed, or the function does not have the parameters of a
            network's function.

    Example:
        >>> network_code("mlp").model
        'Model("mlp")'
    """
    if network.startswith(_TIMM):
        return _timm(network.removeprefix(_TIMM))
    if is_reference(network):
        from topk_platform.running.preflight.checks import check_network  # noqa: PLC0415 - torch, a second or two

        check_network(network)
    elif network not in NETWORKS:
        from torchvision import models  # noqa: PLC0415 - torch, a second or two

        known = models.list_models(module=models)
        if network not in known:
            raise unknown_name("network", network, [*NETWORKS, *known])
        return NetworkCode(f'Model("torchvision", {{{{"architecture": "{network}"}}}})')
    return NetworkCode(f'Model("{network}")')


def _timm(architecture: str) -> NetworkCode:
    if importlib.util.find_spec("timm") is None:
        raise UserError(f"--network {_TIMM}{architecture} needs timm: pip install timm")
    import timm  # noqa: PLC0415 - torch, a second or two

    if not timm.is_model(architecture):
        near = get_close_matches(architecture, timm.list_models(), n=1)
        hint = f": did you mean {_TIMM}{near[0]}?" if near else ""
        raise UserError(f"timm has no network {architecture!r}{hint}")
    config = timm.get_pretrained_cfg(architecture)
    # A network with a fixed input size, such as a vision transformer, needs the size of the images.
    fixed = config is not None and config.fixed_input_size
    return NetworkCode(
        model=f'Model("{{name}}:network", {{{{"architecture": "{architecture}"}}}}, label="{architecture}")',
        function=_FUNCTION.format(size=", img_size=shape[1:]" if fixed else ""),
        imports=("import timm", "from torch import nn"),
        ours=("from topk_platform.models.heads import make_head",),
    )
