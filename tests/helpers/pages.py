"""Pages of folders: what `grd-offline report` does, without the command."""

from grd_offline.files.decomposition import read_decomposition
from grd_offline.files.judgement import read_judgement
from grd_offline.files.runs import read_run
from grd_offline.report import make_decomposition_page, make_judgement_page, make_run_page


def report_decomposition(folder, **options):
    """Return the page of a decomposition."""
    return make_decomposition_page(read_decomposition(folder), **options)


def report_judgement(folder):
    """Return the page of a judgement."""
    return make_judgement_page(read_judgement(folder))


def report_runs(folders):
    """Return the page of one or more runs."""
    return make_run_page([read_run(folder) for folder in folders])
