"""`grd-offline export`: a reward model as one file for other programs."""

from pathlib import Path

import click

from grd_offline.core.words import count
from grd_offline.io.files import name_path

from .options import command, option, out_option, path_argument
from .text import echo


@command()
@path_argument("folder", metavar="DIR")
@option(
    "--to",
    "layout",
    type=click.Choice(["onnx", "torch-export"]),
    required=True,
    help="Format of the file. onnx is for any ONNX runtime and needs: pip install onnx "
    "onnxscript. torch-export is for torch.export.load, which runs code from the file: "
    "load only files that you trust.",
)
@out_option("File to write.  [default: DIR plus .onnx or .pt2]")
def export(folder: Path, layout: str, out: Path | None) -> None:
    """Write the reward model in DIR as one file that runs without grd-offline.

    The inputs of the file are observations (N, state) and actions (N, action). If the reward
    depends on them, next_observations (N, state) and terminations (N,) are inputs too. The output
    is rewards (N,). Terminations are bool, and all other arrays are float32. N is any number from 1
    on. Before the file is kept, it is run on steps within the range of the data, and its numbers
    must be those of the model.

    \b
    Examples:
      grd-offline export hc-grd --to onnx
      grd-offline export hc-grd --to torch-export --out reward.pt2
      grd-offline export runs/walker/members/grd-closed-form-seed0 --to onnx
    """
    from grd_offline.io.files.models import REWARD_FOLDER
    from grd_offline.io.files.storage import check_file
    from grd_offline.rewards.export import FORMATS, export_model
    from grd_offline.rewards.model import RewardModel

    model = RewardModel.load(folder)
    # Beside it, not in it: a folder of results is replaced as a whole when it is made again.
    place = name_path(str(folder))
    if place.name == REWARD_FOLDER:
        place = place.resolve().parent
    target = out or place.parent / f"{place.name}{FORMATS[layout]}"
    check_file(target)
    done = export_model(model, target, layout)
    shapes = ", ".join(
        f"{name} (N,)" if name == "terminations" else f"{name} (N, {columns})"
        for name, columns in done.inputs.items()
    )
    echo(f"wrote {done.path}: {shapes} -> rewards (N,)")
    if done.difference is None:
        echo("not checked: onnxruntime is not installed", err=True)
    else:
        echo(
            f"checked on {count(done.steps, 'step')}: it differs from the model by at most "
            f"{done.difference:.2g}; rewards there are of the order of {done.scale:.2g}"
        )
