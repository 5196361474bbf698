"""Pages of folders: what `grd-offline report` does, without the command; and what they say."""

import json
import re
from html import unescape

import pytest

from grd_offline.cli import main
from grd_offline.io.files.results import read_judgement, read_run
from grd_offline.methods.result import read_decomposition
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


def find_payload(page):
    (text,) = re.findall(r'<script type="application/json" id="payload">(.*?)</script>', page)
    return json.loads(text)


def find_text(page):
    """What is read, without the scripts."""
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def refuse_report(arguments, message, capsys):
    """See that the command refuses to make a page, in one line."""
    with pytest.raises(SystemExit) as stopped:
        main(["report", *arguments])
    err = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message in err
    assert len(err.splitlines()) == 1
