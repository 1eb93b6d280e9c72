"""What the record of a run says, for comparison with what a tracker holds."""

from unseen.records.folder import RunFolder


def final_accuracy(folder: RunFolder) -> float:
    result = folder.read_result()
    views = result["results"][result["selection"]]["views"]
    return views["out_of_domain"]["outlines"]["accuracy"]
