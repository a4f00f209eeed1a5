"""KuaiRand's layout from a seeded model of users whose policies' true values are known."""

from moac.kuairand.generate.files import Order, read_order, write
from moac.kuairand.generate.log import Log, log
from moac.kuairand.generate.model import RATES, TABS, UserModel, Users

__all__ = ["RATES", "TABS", "Log", "Order", "UserModel", "Users", "log", "read_order", "write"]
