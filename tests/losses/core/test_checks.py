import pytest
import torch

from topk_losses._core.checks import check_counts, check_labels


def test_counts_are_read_inside_vmap_by_constructors_only():
    """Reading values fails there."""
    counts = torch.tensor([[1, 0]])
    torch.func.vmap(lambda own: check_counts(own) or own)(counts)
    with pytest.raises(RuntimeError):
        torch.func.vmap(lambda own: check_counts(own, look=True) or own)(counts)
    check_counts(counts[0].to("meta"), look=True)  # has no values


@pytest.mark.parametrize("label", [-(2**62), -101, -99, 3, 2**62])
def test_labels_out_of_range_next_to_ignored_ones(label):
    target = torch.tensor([0, -100, 2, label])
    with pytest.raises(ValueError, match=rf"target must be in \[0, 2\] or equal .*, got {label}"):
        check_labels(target, torch.Size((4, 3)), 3, -100)
    check_labels(target[:3], torch.Size((3, 3)), 3, -100)


@pytest.mark.parametrize(
    ("labels", "hinted"), [([1, 3, 2], True), ([0, 3], False), ([1, 4], False), ([-100, 3], True)]
)
def test_labels_from_one_on_are_refused_with_the_remedy(labels, hinted):
    with pytest.raises(ValueError, match=r"got [34]") as error:
        check_labels(torch.tensor(labels), torch.Size((len(labels), 3)), 3, -100)
    assert str(error.value).endswith("take target - 1") == hinted


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8])
def test_labels_may_have_any_integer_dtype(dtype):
    shape, ignore_index = torch.Size((3, 100)), -1
    assert check_labels(torch.tensor([0, 99, 1], dtype=dtype), shape, 100, ignore_index)
    with pytest.raises(ValueError, match=r"target must be in \[0, 99\] .* got 100"):
        check_labels(torch.tensor([0, 100, 1], dtype=dtype), shape, 100, ignore_index)
    if dtype == torch.uint8:  # 255 and -1 have the same bits
        with pytest.raises(ValueError, match=r"target must be in \[0, 99\] .* got 255"):
            check_labels(torch.tensor([0, 255, 1], dtype=dtype), shape, 100, ignore_index)
