"""What the record of a run says, for comparison with what a tracker holds."""

from unseen.results.folder import RunFolder


def final_accuracy(folder: RunFolder) -> float:
    result = folder.read_result()
    return result.view(result.selection, "out_of_domain")["outlines"].accuracy
