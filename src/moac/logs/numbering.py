"""Numbers in place of the names of a log of one's own, out of core.

Users and items are numbered in the order of their ids, values of the context in the order of their text.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from moac.choices import LARGEST_REWARD, SMALLEST_PROPENSITY, counted, shown
from moac.logs import candidates, engine
from moac.logs.buckets import Progress
from moac.logs.connection import Connection
from moac.logs.engine import Limits, Source
from moac.logs.schema import Feature, LogFiles, Schema, Table, column
from moac.logs.source_files import File
from moac.logs.splits import LAST, Rule, per_second

_WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")
_REAL_TYPES = ("FLOAT", "DOUBLE", "DECIMAL")
_BYTES_PER_ROW = 64
"""Of a row, whatever the file: so that buckets, and so the result, depend on the rows alone."""
_MOST_VALUES = 1000
_IDENTITY = Feature("item", "name", "category", 8)
"""Of an item beside its features: one-hot where train users viewed few items, else eight numbers by hash."""

_MIXED = "the feature `{}` is a category: {:,} of its {:,} values are numbers, but {!r} is none; a gap should be empty"
_UNDESCRIBED = "`{0}s` describes {1:,} of the {2:,} {0}s of the log: the others have no features"


def names(connection: Connection, table: Path, ids: Any) -> Any:
    """What the numbers of users or items stand for: whole numbers where all ids are, else texts."""
    connection.register("wanted", {"id": ids, "place": np.arange(len(ids))})
    query = f"SELECT name, whole FROM wanted JOIN {engine.parquet([table])} USING (id) ORDER BY place"
    return as_ids(connection.execute(query).fetchnumpy())


def as_ids(named: Any) -> Any:
    """Ids from the columns `name` and `whole` of a table of users or items."""
    texts = np.asarray(named["name"], dtype=str)
    return texts.astype(np.int64) if len(texts) and bool(np.asarray(named["whole"]).all()) else texts


def numbered(
    files: LogFiles, place: Path, limits: Limits, rule: Rule, say: Progress, all_items: bool = False
) -> tuple[LogFiles, File]:
    """The same rows as one Parquet file of numbers, and tables of users and items; the file, and what it came from.

    With `all_items` the table of items has also those that no row shows.
    """
    work = place / "work"
    work.mkdir(parents=True, exist_ok=True)
    with engine.connect(limits, work / "spill") as connection:
        return _Numbering(connection, files, place, rule, all_items).run(say)


class _Numbering:
    """From files with names to files with numbers, each step out of core."""

    def __init__(self, connection: Connection, files: LogFiles, place: Path, rule: Rule, all_items: bool) -> None:
        self.all_items, self.warnings = all_items, list[str]()
        self.connection, self.files, self.schema, self.place, self.rule = connection, files, files.schema, place, rule
        self.work, self.context = place / "work", list(files.schema.context.items())
        self.columns = {name: column(getattr(self.schema, name)) for name in ("user", "item", "time")}
        self.columns |= {signal.column: signal.expression or column(signal.column) for signal in self.schema.signals}
        self.columns |= {f"code{k}": expression for k, (_, (expression, _)) in enumerate(self.context)}
        given = {name: getattr(self.schema, name) for name in ("propensity", "candidates")}
        self.optional = {name: column(it) for name, it in given.items() if it is not None}
        self.columns |= self.optional

    def run(self, say: Progress) -> tuple[LogFiles, File]:
        """All steps."""
        pieces, paths = list[Path](), self.files.standard
        for k, path in enumerate(paths):
            say("reading files", k, len(paths))
            pieces.append(self._typed(path, self.work / f"typed{k}.parquet"))
        typed = self._together(pieces)
        count, num_users, newest = self._all(f"SELECT count(*), count(DISTINCT user), max(time) FROM {typed}")[0]
        if not count:
            raise ValueError(f"{paths[0]} must hold rows, got none.")
        if num_users < 2:
            raise ValueError(f"{paths[0]} must have rows of at least two users, got one.")
        features = {f"{key}_features": self._table(key, typed) for key in ("user", "item")}
        values = self._values(typed, self.rule.since(newest))
        if self.schema.candidates is not None:
            candidates.write(self.connection, typed, self.work, f"{paths[0]}: `{self.schema.candidates}`")
        say("reading files", len(paths), len(paths))
        return self._written(typed, count, newest, features, values)

    def _all(self, query: str) -> list[Any]:
        return self.connection.execute(query).fetchall()

    def _typed(self, path: Path, out: Path) -> Path:
        """A file's columns with their types, in the same order; a row that cannot be is an error."""
        if not out.exists():
            source = engine.source(self.connection, path, self.schema.log, (self.schema.user, self.schema.item))
            source = source.with_folders
            for name, expression in self.columns.items():
                if column(_inside(expression)) == expression:
                    known = name in ("user", "item", "time")
                    source.require(_inside(expression), f" Name the right one with `{name}`." if known else "")
            columns = {name: self._cast(source, name) for name in self.columns}
            source = replace(source, columns=columns, checks=self._checks())
            partial = out.with_suffix(".tmp")
            engine.copy_checked(self.connection, f"SELECT * FROM {source.table}", [source], partial)
            for name in ("user", "item"):  # as pandas writes whole numbers where one is missing: 1 of another file
                query = f"SELECT bool_and(regexp_full_match({name}, '-?[0-9]+\\.0')), min({name}) FROM "
                decimal, one = self._all(query + engine.parquet([partial]))[0]
                if decimal:
                    right = f"`{getattr(self.schema, name)}` must hold whole numbers or texts"
                    raise ValueError(f"{path}: {right}, got {shown(one)}: write {one[:-2]}.")
            partial.replace(out)
        return out

    def _cast(self, source: Source, name: str) -> str:
        """A column as what it must be; NULL where it is not."""
        expression = self.columns[name]
        kind = source.types.get(_inside(expression), "").partition("(")[0]
        if name in ("user", "item"):
            _check_ids(source, _inside(expression))
        if name == "candidates":
            return candidates.cast_lists(expression, source.types[_inside(expression)])
        if name.startswith("code") and kind in _REAL_TYPES:  # 1.0 is 1 of another file
            return f"regexp_replace(({expression})::VARCHAR, '\\.0+$', '')"
        if name in ("user", "item") or name.startswith("code"):
            return f"nullif(({expression})::VARCHAR, '')"  # CSV knows no difference
        if name == "time" and kind in (*_REAL_TYPES, "VARCHAR"):
            kind = self._kind_of_times(source)
        if name == "time" and kind not in (*_WHOLE_TYPES, "DOUBLE"):
            moment = f"epoch_ms(try_cast({expression} AS TIMESTAMPTZ))"
            return f"CASE WHEN {moment} < {1000 * LAST} THEN {moment} END"
        number = f"try_cast({expression} AS {'BIGINT' if kind != 'DOUBLE' and name == 'time' else 'DOUBLE'})"
        return f"CASE WHEN isfinite({number}::DOUBLE) THEN {number} END" if name == "time" else number

    def _kind_of_times(self, source: Source) -> str:
        """Whether times, but for some that cannot be, are whole numbers, have fractions or are dates."""
        text = f"({self.columns['time']})::VARCHAR"
        number = f"try_cast({text} AS DOUBLE)"
        counts = f"count({number}), count(try_cast({text} AS TIMESTAMPTZ)), bool_or({number} != floor({number}))"
        numbers, dates, fractions = self._all(f"SELECT {counts} FROM {source.rows}")[0]
        return ("DOUBLE" if fractions else "BIGINT") if numbers > dates else "DATE"

    def _together(self, pieces: list[Path]) -> str:
        """SQL of all files' rows, with times in the finest unit that a file has."""
        query = "SELECT max(time), any_value(typeof(time)) FROM "
        newest, kinds = zip(*(self._all(query + engine.parquet([piece]))[0] for piece in pieces), strict=True)
        units = [0 if each is None else per_second(each, dated=False) for each in newest]
        same = set(units) <= {0, max(units)}
        if same and len({*kinds} - {None}) < 2:
            return engine.parquet(pieces)
        scales = [max(units) // (unit or max(units)) if not same else 1 for unit in units]
        each = (
            f"SELECT * REPLACE ({'time::DOUBLE' if same else f'round(time * {scale})::BIGINT'} AS time) "
            f"FROM {engine.parquet([piece])}"
            for scale, piece in zip(scales, pieces, strict=True)
        )
        return f"({' UNION ALL '.join(each)})"

    def _checks(self) -> tuple[engine.Check, ...]:
        """What each column must hold once it has its type."""
        schema, checks = self.schema, list[engine.Check]()
        moment = "a number or a date such as 2022-05-04, before 2200"
        for name, right in (("user", "an id"), ("item", "an id"), ("time", moment)):
            checks.append(engine.Check(getattr(schema, name), f"{name} IS NOT NULL", right, self.columns[name]))
        for signal in schema.signals:
            expression = self.columns[signal.column]
            plain = _inside(expression) if _inside(expression).isidentifier() else expression
            advice = f": {signal.name}=coalesce({plain}, 0) makes a gap 0"
            finite = (f"isfinite({signal.column})", "a finite number", expression, advice)
            checks.append(engine.Check(signal.name, *finite))
            size = (f"abs({signal.column}) <= {LARGEST_REWARD}", f"within ±{LARGEST_REWARD:.0e}", expression)
            checks.append(engine.Check(signal.name, *size))
        if schema.propensity is not None:
            share = ("propensity > 0 AND propensity <= 1", "in (0, 1]", self.columns["propensity"])
            checks.append(engine.Check(schema.propensity, *share))
            least = (f"propensity >= {SMALLEST_PROPENSITY}", f"at least {SMALLEST_PROPENSITY}", share[-1])
            checks.append(engine.Check(schema.propensity, *least))
        if schema.candidates is not None:
            checks += candidates.checks(schema.candidates, self.columns["candidates"])
        return tuple(checks)

    def _table(self, key: str, typed: str) -> tuple[Feature, ...]:
        """Write the table of users or items, numbered by id, with their features; which features these are."""
        paths = self.files.feature_files[f"{key}s"]
        described, table = self._features(getattr(self.schema, key), paths) if paths else ((), "")
        more = f" UNION SELECT name FROM ({table})" if key == "item" and self.all_items and paths else ""
        distinct = f"SELECT DISTINCT {key} AS name FROM {typed}{more}"
        whole = "bool_and(coalesce(try_cast(name AS BIGINT)::VARCHAR = name, false)) OVER ()"
        listed = f"SELECT name, {whole} AS whole FROM ({distinct})"
        order = "row_number() OVER (ORDER BY CASE WHEN whole THEN name::BIGINT END, name) - 1"
        joined = f"(SELECT ({order})::INTEGER AS id, name, whole FROM ({listed}))"
        features = (*((_IDENTITY,) if key == "item" else ()), *described)
        if paths:
            self._check_described(key, paths[0], f"SELECT DISTINCT {key} AS name FROM {typed}", table)
            joined = f"{joined} LEFT JOIN ({table}) USING (name)"
        engine.copy_whole(self.connection, f"SELECT * FROM {joined} ORDER BY id", self.work / f"{key}s.parquet")
        return features

    def _check_described(self, key: str, path: Path, shown: str, table: str) -> None:
        """Refuse a file that describes nothing of the log: its ids are written otherwise, or of something else."""
        known = f"SELECT count(*), count(*) FILTER (name IN (SELECT name FROM ({table}))) FROM ({shown})"
        count, both = self._all(known)[0]
        if both < count:
            self.warnings.append(_UNDESCRIBED.format(key, both, count))
        if not both:
            theirs, mine = (self._all(f"SELECT min(name) FROM ({each})")[0][0] for each in (table, shown))
            raise ValueError(f"{path} must describe ids of the log, such as {mine!r}, got none of them: {theirs!r}.")

    def _features(self, wanted: str, paths: tuple[Path, ...]) -> tuple[tuple[Feature, ...], str]:
        """The features that files describe, each column by its type, and SQL of their table, with ids in `name`."""
        sources = [engine.source(self.connection, path, Table("features"), (wanted,)) for path in paths]
        for source in sources:
            source.require(wanted)
            _check_ids(source, wanted)
        rows = f"({' UNION ALL BY NAME '.join(f'SELECT * FROM {source.rows}' for source in sources)})"
        types = engine.types_of(self.connection, paths[0], rows)
        del types[wanted]
        renamed = "".join(f", {column(name)} AS {column(f'feature {name}')}" for name in types)
        table = f"(SELECT nullif({column(wanted)}::VARCHAR, '') AS name{renamed} FROM {rows})"
        engine.check_once(self.connection, table, "name", f"{paths[0]}: `{wanted}`")
        features = tuple(feature for name, kind in types.items() for feature in self._feature(name, kind, table))
        return features, f"SELECT * FROM {table}"

    def _feature(self, name: str, kind: str, table: str) -> list[Feature]:
        """A number, two of them where it can be negative, or a category."""
        at = column(f"feature {name}")
        if kind == "BOOLEAN":
            return [Feature(name, f"{at}::INTEGER", "scaled")]
        if kind.partition("(")[0] not in (*_WHOLE_TYPES, *_REAL_TYPES):
            numbers = f"try_cast({at}::VARCHAR AS DOUBLE)"
            query = f"SELECT count({numbers}), count({at}), min({at}::VARCHAR) FILTER ({numbers} IS NULL) FROM {table}"
            count, every, other = self._all(query)[0]
            if every / 2 < count < every:
                self.warnings.append(_MIXED.format(name, count, every, other[:40]))
            return [Feature(name, f"{at}::VARCHAR", "category")]
        (negative,) = self._all(f"SELECT coalesce(min({at}) < 0, false) FROM {table}")[0]
        below = [Feature(f"-{name}", f"greatest(-{at}, 0)", "number")] if negative else []
        return [Feature(name, f"greatest({at}, 0)" if negative else at, "number"), *below]

    def _values(self, typed: str, since: float | None) -> tuple[tuple[str, ...], ...]:
        """The values of each column of the context that train rows have."""
        users = self.connection.execute(f"SELECT * FROM {engine.parquet([self.work / 'users.parquet'])} ORDER BY id")
        ids = as_ids(users.fetchnumpy())
        train = self.rule.users(ids) == 0 if self.rule.name != "time" else np.ones(len(ids), bool)
        if not train.any():
            raise ValueError(
                f"`shares` must leave users to train on, got {self.rule.shares} of {counted(len(ids), 'user')}."
            )
        self.connection.register("train", {"name": ids.astype(str).astype(object)[train]})
        early, values = "" if since is None else f" AND time < {since}", list[tuple[str, ...]]()
        for k, (label, _) in enumerate(self.context):
            query = f"SELECT DISTINCT code{k} FROM {typed} WHERE user IN (SELECT name FROM train){early}"
            values.append(tuple(sorted(str(value) for (value,) in self._all(query) if value is not None)))
            if len(values[k]) > _MOST_VALUES:
                raise ValueError(f"`context` {label} must have at most {_MOST_VALUES} values, got {len(values[k]):,}.")
        return tuple(values)

    def _written(self, typed: str, count: int, newest: float, features: Any, values: Any) -> tuple[LogFiles, File]:
        """Write all rows with numbers in place of names; the files, with their schema."""
        joins, codes = [], {f"code{k}": f"coalesce(value{k}.code, -1)" for k in range(len(values))}
        for k, known in enumerate(values):
            listed = np.array(known or [""], object)  # no row has that one
            self.connection.register(f"values{k}", {"value": listed, "code": np.arange(len(listed), dtype=np.int32)})
            joins.append(f"LEFT JOIN values{k} AS value{k} ON value{k}.value = t.code{k}")
        if self.schema.candidates is not None:
            lists = engine.parquet([self.work / "lists.parquet"])
            joins.append(f"JOIN {lists} AS lists ON lists.candidates = t.candidates")
        numbers = {"user": "u.id", "item": "i.id", "candidates": "lists.list"} | codes
        users, items = (engine.parquet([self.work / f"{what}.parquet"]) for what in ("users", "items"))
        people = f"{typed} AS t JOIN {users} AS u ON t.user = u.name JOIN {items} AS i ON t.item = i.name"
        selected = ", ".join(f"{numbers.get(name, f't.{name}')} AS {name}" for name in self.columns)
        path, vocabulary = self.work / "log.parquet", f"SELECT id, name, whole FROM {items} ORDER BY id"
        engine.copy_whole(self.connection, f"SELECT {selected} FROM {people} {' '.join(joins)}", path)
        engine.copy_whole(self.connection, vocabulary, self.place / "items.parquet")
        kinds = dict.fromkeys(("user", "item", "candidates", *codes), "INTEGER")
        kinds["time"] = "DOUBLE" if isinstance(newest, float) else "BIGINT"
        second = per_second(newest, dated=False)
        schema = Schema(
            Table("log", {name: kinds.get(name, "DOUBLE") for name in self.columns}), "user", "item", "time",
            tuple(replace(signal, expression=None) for signal in self.schema.signals),
            {label: (f"code{k}", len(values[k])) for k, (label, _) in enumerate(self.context)},
            **features | {name: name for name in self.optional},
            day=f"floor(time)::BIGINT // {86400 * second}" if second else None, named=True,
        )  # fmt: skip
        warnings = (*self.files.warnings, *self.warnings)
        made = LogFiles(self.files.name, schema, (path,), warnings=warnings, context_values=values)
        return made, File(path, schema.log, count * _BYTES_PER_ROW, "")


def _check_ids(source: Source, name: str) -> None:
    """Refuse ids that are written in more than one way, such as 1 and 1.0."""
    kind = source.types[name].partition("(")[0]
    if kind in (*_REAL_TYPES, "BOOLEAN"):
        raise ValueError(f"{source.path}: `{name}` must hold whole numbers or texts, got {kind}: mixed types?")


def _inside(expression: str) -> str:
    """The name of a column, where the expression is a quoted column alone."""
    return expression[1:-1].replace('""', '"') if expression[:1] == expression[-1:] == '"' else expression
