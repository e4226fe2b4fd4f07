#include "schedule.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace dorylax {
namespace {

// Work in a block, in entries: large enough to make claiming it free, small enough to balance threads.
constexpr int64_t kBlock = 8192;
// What a row costs beyond its entries, in entries: a block of a million empty rows is work too.
constexpr int64_t kRowCost = 4;
// Rows in a block of work that has no entries.
constexpr int64_t kRows = 1024;
// Bytes of vertices' rows that stay near all threads while they are read again and again: what two cores can count on of a
// cache that they share with others; and what they may hope for.
constexpr int64_t kNear = 6 << 20;
constexpr int64_t kHopedNear = 32 << 20;
// Entries per row below which a sweep costs more than it saves: each reads and writes every row's accumulators.
constexpr int64_t kSweepLeast = 6;

// First row of begin … end at or after which at least `work` lies before; work grows with rows and their entries.
int64_t row_at(const int64_t* offsets, int64_t begin, int64_t end, int64_t work) {
  int64_t low = begin, high = end;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (offsets[middle] - offsets[begin] + kRowCost * (middle - begin) < work) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

struct Hub {
  int64_t row;
  int64_t first_span;  // position of its first span among all spans
  int64_t spans;
};

// Runs over rows begin … end in several sweeps: `block(sweep, begin, end)` over blocks of rows and `span(sweep, i, row,
// first, last, partial)` over the spans of rows of more than kSpan entries, of which this is the i-th; then
// `combine(row, partials, count)` for each of these rows.
template <class Block, class Span, class Combine>
void by_rows(const int64_t* offsets, int64_t begin, int64_t end, int64_t partial_bytes, int64_t sweeps,
             const ParallelFor& parallel_for, const Block& block, const Span& span, const Combine& combine) {
  std::vector<Hub> hubs;
  int64_t spans = 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t length = offsets[row + 1] - offsets[row];
    if (length > kSpan) {
      hubs.push_back({row, spans, (length + kSpan - 1) / kSpan});
      spans += hubs.back().spans;
    }
  }
  std::unique_ptr<char[]> partials(spans ? new char[spans * partial_bytes] : nullptr);
  const int64_t work = offsets[end] - offsets[begin] + kRowCost * (end - begin), size = kBlock * sweeps;
  const int64_t blocks = (work + size - 1) / size;

  for (int64_t sweep = 0; sweep < sweeps; ++sweep) {
    // Spans come first: they are the largest pieces.
    parallel_for(spans + blocks, [&](int64_t item) {
      if (item < spans) {
        auto after = std::upper_bound(hubs.begin(), hubs.end(), item,
                                      [](int64_t value, const Hub& hub) { return value < hub.first_span; });
        const Hub& hub = *(after - 1);
        const int64_t first = offsets[hub.row] + (item - hub.first_span) * kSpan;
        const int64_t last = std::min(first + kSpan, offsets[hub.row + 1]);
        span(sweep, item, hub.row, first, last, partials.get() + item * partial_bytes);
      } else {
        const int64_t index = item - spans;
        const int64_t from = row_at(offsets, begin, end, index * size);
        const int64_t to = index + 1 == blocks ? end : row_at(offsets, begin, end, (index + 1) * size);
        block(sweep, from, to);
      }
    });
  }
  // In order of spans, whichever thread computed them.
  parallel_for(static_cast<int64_t>(hubs.size()), [&](int64_t i) {
    combine(hubs[i].row, partials.get() + hubs[i].first_span * partial_bytes, hubs[i].spans);
  });
}

// In how many sweeps the rows are reduced: what a sweep reads is to stay near, as far as rows have entries for so many.
int64_t count_sweeps(const Rows& rows, int64_t bytes_per_vertex, int64_t begin, int64_t end) {
  if (!rows.neighbours || begin == end) return 1;
  const int64_t bytes = rows.num_vertices * bytes_per_vertex, entries = rows.offsets[end] - rows.offsets[begin];
  const int64_t wanted = (bytes + kNear - 1) / kNear, sweeps = std::min(wanted, entries / (kSweepLeast * (end - begin)));
  return sweeps > 1 && bytes / sweeps <= kHopedNear ? sweeps : 1;
}

}  // namespace

void reduce(Op op, Dtype dtype, const Rows& rows, int64_t begin, int64_t end, const ParallelFor& parallel_for) {
  const Kernels& kernels = active_kernels();
  const int o = static_cast<int>(op), d = static_cast<int>(dtype);
  const int64_t columns = rows.heads * rows.width;
  const int64_t sweeps = kernels.sweep[o][d] ? count_sweeps(rows, columns * bytes_per_value(op, dtype), begin, end) : 1;
  const auto combine = [&](int64_t row, const void* partials, int64_t count) {
    kernels.combine[o][d](rows, row, partials, count);
  };
  const int64_t partial_bytes = columns * bytes_per_accumulator(dtype);
  if (sweeps == 1) {
    by_rows(
        rows.offsets, begin, end, partial_bytes, 1, parallel_for,
        [&](int64_t, int64_t from, int64_t to) { kernels.reduce[o][d](rows, from, to); },
        [&](int64_t, int64_t, int64_t row, int64_t first, int64_t last, void* partial) {
          kernels.span[o][d](rows, row, first, last, false, partial);
        },
        combine);
    return;
  }
  std::unique_ptr<int64_t[]> positions(new int64_t[end - begin]);
  // A row of more than kSpan entries has at most two spans for every kSpan of them.
  std::vector<int64_t> in_spans(2 * (rows.offsets[end] - rows.offsets[begin]) / kSpan);
  const auto until = [&](int64_t sweep) { return rows.num_vertices * (sweep + 1) / sweeps; };
  by_rows(
      rows.offsets, begin, end, partial_bytes, sweeps, parallel_for,
      [&](int64_t sweep, int64_t from, int64_t to) {
        kernels.sweep[o][d](rows, from, to, {sweep == 0, sweep + 1 == sweeps, until(sweep), positions.get() - begin});
      },
      [&](int64_t sweep, int64_t span, int64_t row, int64_t first, int64_t last, void* partial) {
        const int64_t from = sweep == 0 ? first : in_spans[span];
        const int64_t to = sweep + 1 == sweeps ? last : sweep_end(rows.neighbours, from, last, until(sweep));
        in_spans[span] = to;
        if (sweep == 0 || from < to) kernels.span[o][d](rows, row, from, to, sweep != 0, partial);
      },
      combine);
}

void attend(Attend pass, Dtype dtype, const Attention& given, int64_t num_rows, const ParallelFor& parallel_for) {
  const Kernels& kernels = active_kernels();
  const int p = static_cast<int>(pass), d = static_cast<int>(dtype);
  Attention call = given;
  std::unique_ptr<char[]> packed;
  if (pass == Attend::kBackward) {
    packed.reset(new char[num_rows * 4 * call.heads * bytes_per_accumulator(dtype)]);
    call.packed = packed.get();
    parallel_for((num_rows + kRows - 1) / kRows, [&](int64_t block) {
      kernels.attend_prepare[d](call, block * kRows, std::min((block + 1) * kRows, num_rows));
    });
  }
  by_rows(
      call.offsets, 0, num_rows, attention_partial(call.heads, call.width) * bytes_per_accumulator(dtype), 1, parallel_for,
      [&](int64_t, int64_t begin, int64_t end) { kernels.attend[p][d](call, begin, end); },
      [&](int64_t, int64_t, int64_t row, int64_t first, int64_t last, void* partial) {
        kernels.attend_span[p][d](call, row, first, last, partial);
      },
      [&](int64_t row, const void* partials, int64_t count) {
        kernels.attend_combine[p][d](call, row, partials, count);
      });
}

void per_entry(PerEntry kernel, const Rows& rows, int64_t num_rows, const ParallelFor& parallel_for) {
  // Results do not depend on one another, so blocks may cut rows: entries [b * kBlock, (b + 1) * kBlock).
  const int64_t first = rows.offsets[0], entries = rows.offsets[num_rows] - first;
  parallel_for((entries + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t from = first + block * kBlock, to = std::min(from + kBlock, first + entries);
    // The row that holds entry `from`, and the first row that begins at or after `to`.
    const int64_t begin = std::upper_bound(rows.offsets, rows.offsets + num_rows + 1, from) - rows.offsets - 1;
    const int64_t end = std::lower_bound(rows.offsets + begin, rows.offsets + num_rows, to) - rows.offsets;
    kernel(rows, begin, end, from, to);
  });
}

namespace {

const Kernels* best_kernels() {
  if (const Kernels* kernels = kernels_avx512()) return kernels;
  if (const Kernels* kernels = kernels_avx2()) return kernels;
  return kernels_baseline();
}

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> kernels{best_kernels()};
  return kernels;
}

}  // namespace

const Kernels& active_kernels() { return *chosen().load(std::memory_order_relaxed); }

bool choose_kernels(const char* name) {
  const std::string_view wanted(name);
  for (const Kernels* kernels : {wanted.empty() ? best_kernels() : nullptr, kernels_avx512(), kernels_avx2(),
                                 kernels_baseline()}) {
    if (kernels && (wanted.empty() || wanted == kernels->name)) {
      chosen().store(kernels);
      return true;
    }
  }
  return false;
}

}  // namespace dorylax
