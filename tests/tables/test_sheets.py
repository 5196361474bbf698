"""Spreadsheets: the first sheet is a table, and what cannot be one is refused in one line."""

import zipfile

import pytest
import trips
from click.testing import CliRunner

from grd_offline import DataError, read
from grd_offline.cli.program import cli

COLUMNS = "returns=fuel,actions=throttle,step=minute"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PARTS = {
    "[Content_Types].xml": (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/xl/workbook.xml" ContentType='
        '"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
        '<Override PartName="/xl/worksheets/sheet1.xml" ContentType='
        '"application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>'
    ),
    "_rels/.rels": (
        f'<Relationships xmlns="{RELATIONS}"><Relationship Id="rId1" '
        f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
    ),
    "xl/workbook.xml": (
        f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>'
        '<sheet name="trips" sheetId="1" r:id="rId1"/></sheets></workbook>'
    ),
    "xl/_rels/workbook.xml.rels": (
        f'<Relationships xmlns="{RELATIONS}"><Relationship Id="rId1" Type="{OFFICE}/worksheet" '
        'Target="worksheets/sheet1.xml"/></Relationships>'
    ),
}


def write_sheet(path, rows):
    """A spreadsheet with these rows of numbers, texts and empty cells."""
    lines = []
    for number, row in enumerate(rows, 1):
        cells = []
        for place, cell in enumerate(row):
            name = f"{chr(65 + place)}{number}"
            if isinstance(cell, str):
                cells.append(f'<c r="{name}" t="inlineStr"><is><t>{cell}</t></is></c>')
            elif cell is not None:
                cells.append(f'<c r="{name}"><v>{cell}</v></c>')
        lines.append(f'<row r="{number}">{"".join(cells)}</row>')
    sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in {**PARTS, "xl/worksheets/sheet1.xml": sheet}.items():
            file.writestr(name, text)


def test_a_sheet_goes_the_way_of_a_csv_file(tmp_path):
    table = trips.make_trips(8)
    write_sheet(tmp_path / "trips.xlsx", [[*table], *zip(*table.values(), strict=True)])
    (tmp_path / "trips.csv").write_text(trips.as_csv(table))
    ours, theirs = (read(tmp_path / f"trips.{end}", columns=COLUMNS) for end in ("xlsx", "csv"))
    assert ours.observation_names == theirs.observation_names
    for one, other in zip(ours, theirs, strict=True):
        assert one.label == other.label
        assert (one.observations == other.observations).all()
        assert (one.rewards == other.rewards).all()
    command = ["decompose", str(tmp_path / "trips.xlsx"), "--columns", COLUMNS]
    done = CliRunner().invoke(cli, [*command, "--method", "uniform"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert (tmp_path / "trips-grd" / "relabelled.csv").is_file()


HEAD = ["episode", "step", "x", "return"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "is empty: expected a row of column names"),
        ([HEAD], "has no rows|no rows"),
        ([["a", "a"], [1, 2]], "two columns are called a"),
        ([[1, 2], [3, 4]], "the first row holds numbers"),
        ([HEAD, [1, 0, None, 2]], "row 2 of x"),
        (
            [HEAD, *([1, step, float(step), 2] for step in range(20)), [1, 20, "auto", 2]],
            "column x: row 22: 'auto' is not a number, as other rows are",
        ),
    ],
)
def test_bad_sheets_end_in_one_line(tmp_path, rows, message):
    write_sheet(tmp_path / "bad.xlsx", rows)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / "bad.xlsx")
    assert "\n" not in str(caught.value)
    assert "bad.xlsx" in str(caught.value)


def test_files_that_unpack_to_far_more_are_refused(tmp_path, monkeypatch):
    (tmp_path / "none.xlsx").write_bytes(b"PK" + bytes(2000))
    with pytest.raises(DataError, match="is not a spreadsheet that can be read"):
        read(tmp_path / "none.xlsx")
    monkeypatch.setattr("grd_offline.io.tables.sources.PLAUSIBLE", 1_000)
    monkeypatch.setattr("grd_offline.io.tables.sources.TIMES", 1)
    rows = [HEAD, *([1, step, 0.5, 2] for step in range(5_000))]
    write_sheet(tmp_path / "large.xlsx", rows)
    with pytest.raises(DataError, match=r"unpacks to .* use --max-size"):
        read(tmp_path / "large.xlsx")
    whole = (tmp_path / "large.xlsx").read_bytes()
    broken = whole[:200] + b"\0" * 40 + whole[240:]
    (tmp_path / "broken.xlsx").write_bytes(broken)
    with pytest.raises(DataError):
        read(tmp_path / "broken.xlsx", max_bytes=10**9)
