"""Tables with one row per step: CSV and Parquet files, data frames, LeRobot folders, turns.

Every source gives its columns in blocks of rows (`sources`), `columns` says which column is what,
and `build` makes a `Recording` of them, which is all that the rest of the package gets to see.
`results` gives tables of rewards back.
"""
