"""A small ledger: accounts, postings and a monthly statement.

Amounts are integers in the smallest unit of their currency, because floats
lose cents. Every transaction must balance before it is accepted.
"""

import argparse
import csv
import datetime
import sys
from collections import defaultdict
from dataclasses import dataclass, field


class LedgerError(Exception):
    """Something in the books does not add up."""


@dataclass(frozen=True)
class Posting:
    """One line of a transaction: an amount moved into an account."""

    account: str
    amount: int
    currency: str = "EUR"

    def __post_init__(self):
        if not self.account:
            raise LedgerError("a posting needs an account")
        if self.amount == 0:
            raise LedgerError(f"posting to {self.account} moves nothing")


@dataclass
class Transaction:
    """Postings that belong together and sum to zero per currency."""

    date: datetime.date
    text: str
    postings: list = field(default_factory=list)

    def balance(self):
        totals = defaultdict(int)
        for posting in self.postings:
            totals[posting.currency] += posting.amount
        return {currency: total for currency, total in totals.items() if total}

    def check(self):
        rest = self.balance()
        if rest:
            detail = ", ".join(f"{total / 100:.2f} {currency}" for currency, total in sorted(rest.items()))
            raise LedgerError(f"{self.date} {self.text!r} is off by {detail}")


class Ledger:
    """All transactions in order of their dates."""

    def __init__(self):
        self._transactions = []

    def add(self, transaction):
        transaction.check()
        index = len(self._transactions)
        while index and self._transactions[index - 1].date > transaction.date:
            index -= 1
        self._transactions.insert(index, transaction)

    def between(self, first, last):
        for transaction in self._transactions:
            if first <= transaction.date <= last:
                yield transaction

    def balances(self, until=None):
        totals = defaultdict(int)
        for transaction in self._transactions:
            if until is not None and transaction.date > until:
                break
            for posting in transaction.postings:
                totals[posting.account, posting.currency] += posting.amount
        return dict(totals)


def read_rows(lines):
    """Yields transactions from rows of date, text, account, amount, currency."""
    reader = csv.DictReader(lines, delimiter=";")
    current = None
    for number, row in enumerate(reader, start=2):
        try:
            date = datetime.date.fromisoformat(row["date"])
            amount = round(float(row["amount"].replace(",", ".")) * 100)
        except (KeyError, ValueError) as error:
            raise LedgerError(f"line {number}: {error}") from error
        posting = Posting(row["account"].strip(), amount, row.get("currency") or "EUR")
        if current and (current.date, current.text) == (date, row["text"]):
            current.postings.append(posting)
            continue
        if current:
            yield current
        current = Transaction(date, row["text"], [posting])
    if current:
        yield current


def statement(ledger, year, month, out=sys.stdout):
    """Prints what moved in a month and what every account holds at its end."""
    first = datetime.date(year, month, 1)
    last = (first + datetime.timedelta(days=31)).replace(day=1) - datetime.timedelta(days=1)
    print(f"Statement for {first:%B %Y}", file=out)
    for transaction in ledger.between(first, last):
        print(f"  {transaction.date}  {transaction.text}", file=out)
        for posting in transaction.postings:
            print(f"      {posting.account:<30} {posting.amount / 100:>12.2f} {posting.currency}", file=out)
    print("Balances", file=out)
    for (account, currency), total in sorted(ledger.balances(last).items()):
        if total:
            print(f"  {account:<34} {total / 100:>12.2f} {currency}", file=out)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Print the statement of one month.")
    parser.add_argument("file", type=argparse.FileType("r"), help="semicolon-separated postings")
    parser.add_argument("--month", default=None, help="as 2024-05; the last month in the file if left out")
    options = parser.parse_args(argv)
    ledger = Ledger()
    newest = None
    try:
        for transaction in read_rows(options.file):
            ledger.add(transaction)
            newest = max(newest or transaction.date, transaction.date)
    except LedgerError as error:
        parser.exit(1, f"ledger: {error}\n")
    if newest is None:
        parser.exit(0, "ledger: no postings\n")
    year, month = map(int, options.month.split("-")) if options.month else (newest.year, newest.month)
    statement(ledger, year, month)


if __name__ == "__main__":
    main()
