"""A stranger's CSV: texts as ids, two contexts, three signals of which one is a cost, unsorted times, a BOM."""

import csv
import io

import numpy as np

COLUMNS = ("user_id", "item_id", "ts", "tab", "hour", "click", "minutes", "returned")
OPTIONS = {"user": "user_id", "item": "item_id", "time": "ts"}
OPTIONS |= {"signals": "click,minutes,-returned", "context": "tab,hour"}
ITEMS = ("mug", "té, vert", 'a "b"', "=cmd()", "007", "pen\ncase")


def rows(users=40, per_user=12, seed=0):
    """Dicts in no order: `user 3` and such, names with commas, quotes, a line break and a formula, ISO dates."""
    rng, made = np.random.default_rng(seed), []
    for user in range(users):
        for k in range(per_user):
            item, click = rng.integers(len(ITEMS)), rng.random() < 0.4
            day, hour = 1 + (k * 2) % 28, int(rng.integers(3)) + 9
            made.append({
                "user_id": f"user {user}", "item_id": ITEMS[item], "ts": f"2022-05-{day:02d} {hour:02d}:{k:02d}:00",
                "tab": ("home", "search")[rng.integers(2)], "hour": hour, "click": int(click),
                "minutes": round(float(rng.exponential(2 + 3 * click)), 3), "returned": int(rng.random() < 0.1),
            })  # fmt: skip
    return [made[k] for k in rng.permutation(len(made))]


def text(table, newline="\r\n", bom=True, columns=COLUMNS):
    """The table as CSV."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, lineterminator=newline, extrasaction="ignore", quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    writer.writerows(table)
    return ("\ufeff" if bom else "") + file.getvalue()


def write(path, table=None, **how):
    """The file, in UTF-8."""
    path.write_bytes(text(rows() if table is None else table, **how).encode())
    return path
