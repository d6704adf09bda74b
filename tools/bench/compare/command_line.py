"""What the command lines of the comparisons have in common."""
import argparse
import os

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


def numbers(text):
    """1000,1e6"""
    return [int(float(word)) for word in text.split(",")]


def at_least_one(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def folder(text):
    """That of results, which is made if it is not there."""
    try:
        os.makedirs(text, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None
    return text
