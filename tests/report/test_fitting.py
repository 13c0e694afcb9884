"""Long names and wide tables: what fits a width, and what is never lost by it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.report import fitting
from traceconv.report.fitting import Cells, shortened

FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<{0}>, "
    "std::array<char*, 1ul> >(int, at::native::FillFunctor<{0}>, std::array<char*, 1ul>)"
)


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("  Memcpy   HtoD (Pinned -> Device)", 40, "Memcpy HtoD (Pinned -> Device)"),
        ("void scale<float>(float*, int)", 40, "void scale<float>(float*, int)"),
        ("void scale_rows<float>(float*)", 27, "scale_rows<float>(float*)"),
        ("void scale_rows<float>(float*)", 24, "scale_rows(float*)"),
        ("void scale_rows<float>(float*)", 17, "scale_rows"),
        (FILL.format("float"), 60, "at::native::vectorized_elementwise_kernel"),
        (FILL.format("float"), 30, "vectorized_elementwise_kernel"),
        ("ns::ptr<Ops<(bool)1> >::run(int, ns::vec<int>)", 30, "ns::ptr::run(int, ns::vec)"),
        ("void (anonymous namespace)::soft<8>(float*)", 36, "(anonymous namespace)::soft(float*)"),
        ("std::enable_if<((8)>(0))&&ok<T>::value>::type ns::norm<T, 8>(T*, int)", 30,
         "ns::norm<T, 8>(T*, int)"),
        ("less < than > more and more of it", 20, "less < th...re of it"),
        ("unmatched<brackets<in>some_name_of_a_kernel", 20, "unmatched...a_kernel"),
    ],
)  # fmt: skip
def test_what_tells_least_goes_first(name, width, short):
    """The return type, arguments of templates, parameters, the name spaces, the middle."""
    (found,) = shortened([name], width)
    assert found == short


@pytest.mark.parametrize("width", [16, 24, 40, 60])
def test_names_that_differ_only_inside_show_where(width):
    """In the arguments that are dropped elsewhere, in the middle, in the last digit."""
    names = [
        *(FILL.format(one) for one in ("float", "double", "c10::BFloat16")),
        *(f"ampere_fp16_s16816gemm_{n}x128_ldg8_f2f_stages_64x3_tn" for n in (64, 128, 256)),
        *(f"Default/network-{'Cell/' * 20}MatMul-op{n}" for n in range(30)),
    ]
    found = shortened(names, width)
    assert len(set(found)) == len(names)
    assert max(map(len, found)) <= width
    if width == 60:
        assert [re.search("float|double|BFloat16", one)[0] for one in found[:3]] == [
            "float", "double", "BFloat16"
        ]  # fmt: skip


PARTS = st.sampled_from(
    ["void ", "a", "b", "kernel", "<", ">", "(", ")", "::", ", ", "int", "operator", "->", "x" * 30]
)


@given(st.lists(st.lists(PARTS, max_size=12).map("".join), max_size=12), st.integers(1, 70))
def test_no_two_names_become_one(names, width):
    """Whatever they are; equal ones stay equal."""
    found = shortened(names, width)
    whole = [" ".join(name.split()) for name in names]
    assert len(set(zip(whole, found, strict=True))) == len(set(whole)) == len(set(found))
    assert all(len(one) <= max(width, 16) for one in found)


TEXTS = st.text("ab /:<>", min_size=1, max_size=50).filter(str.strip)
NUMBERS = st.integers(0, 10**9).map(str)


@given(st.data(), st.integers(1, 8), st.integers(0, 4), st.integers(50, 160))
def test_tables_fit_and_lose_no_column(data, numbers, rows, width):
    """Every heading, every number and every row is there, in lines that are short enough."""
    cells = st.lists(NUMBERS, min_size=rows, max_size=rows)
    columns = [
        Cells("Rank", [str(row) for row in range(rows)], False, True),
        Cells("Kernel", data.draw(st.lists(TEXTS, min_size=rows, max_size=rows)), True, True),
        *(Cells(f"Total Time of {n}(us)", data.draw(cells), False, False) for n in range(numbers)),
    ]
    lines = fitting.lines(columns, width, 60)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for column in columns[2:]:
        assert all(words.count(cell) >= column.cells.count(cell) for cell in column.cells)
    assert words.count("Total") == numbers
    assert fitting.lines(columns, None, 60)[0].split()[:2] == ["Rank", "Kernel"]
