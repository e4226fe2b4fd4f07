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

// First row at or after which at least `work` lies before; work(r) = offsets[r] + kRowCost * r is monotone.
int64_t row_at(const int64_t* offsets, int64_t num_rows, int64_t work) {
  int64_t low = 0, high = num_rows;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (offsets[middle] - offsets[0] + kRowCost * middle < work) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int64_t count_blocks(const int64_t* offsets, int64_t num_rows) {
  const int64_t work = offsets[num_rows] - offsets[0] + kRowCost * num_rows;
  return (work + kBlock - 1) / kBlock;
}

struct Hub {
  int64_t row;
  int64_t first_span;  // position of its first span among all spans
  int64_t spans;
};

// Runs `block(begin, end)` over blocks of rows, `span(row, first, last, partial)` over the spans of rows of more than kSpan
// entries, and then `combine(row, partials, count)` for each of these.
template <class Block, class Span, class Combine>
void by_rows(const int64_t* offsets, int64_t num_rows, int64_t partial_bytes, const ParallelFor& parallel_for,
             const Block& block, const Span& span, const Combine& combine) {
  std::vector<Hub> hubs;
  int64_t spans = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t length = offsets[row + 1] - offsets[row];
    if (length > kSpan) {
      hubs.push_back({row, spans, (length + kSpan - 1) / kSpan});
      spans += hubs.back().spans;
    }
  }
  std::unique_ptr<char[]> partials(spans ? new char[spans * partial_bytes] : nullptr);
  const int64_t blocks = count_blocks(offsets, num_rows);

  // Spans come first: they are the largest pieces.
  parallel_for(spans + blocks, [&](int64_t item) {
    if (item < spans) {
      auto after = std::upper_bound(hubs.begin(), hubs.end(), item,
                                    [](int64_t value, const Hub& hub) { return value < hub.first_span; });
      const Hub& hub = *(after - 1);
      const int64_t first = offsets[hub.row] + (item - hub.first_span) * kSpan;
      const int64_t last = std::min(first + kSpan, offsets[hub.row + 1]);
      span(hub.row, first, last, partials.get() + item * partial_bytes);
    } else {
      const int64_t index = item - spans;
      const int64_t begin = row_at(offsets, num_rows, index * kBlock);
      const int64_t end = index + 1 == blocks ? num_rows : row_at(offsets, num_rows, (index + 1) * kBlock);
      block(begin, end);
    }
  });
  // In order of spans, whichever thread computed them.
  parallel_for(static_cast<int64_t>(hubs.size()), [&](int64_t i) {
    combine(hubs[i].row, partials.get() + hubs[i].first_span * partial_bytes, hubs[i].spans);
  });
}

}  // namespace

void reduce(Op op, Dtype dtype, const Rows& rows, int64_t num_rows, const ParallelFor& parallel_for) {
  const Kernels& kernels = active_kernels();
  const int o = static_cast<int>(op), d = static_cast<int>(dtype);
  by_rows(
      rows.offsets, num_rows, rows.heads * rows.width * bytes_per_accumulator(dtype), parallel_for,
      [&](int64_t begin, int64_t end) { kernels.reduce[o][d](rows, begin, end, kSpan); },
      [&](int64_t row, int64_t first, int64_t last, void* partial) {
        kernels.span[o][d](rows, row, first, last, partial);
      },
      [&](int64_t row, const void* partials, int64_t count) { kernels.combine[o][d](rows, row, partials, count); });
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
      call.offsets, num_rows, attention_partial(call.heads, call.width) * bytes_per_accumulator(dtype), parallel_for,
      [&](int64_t begin, int64_t end) { kernels.attend[p][d](call, begin, end, kSpan); },
      [&](int64_t row, int64_t first, int64_t last, void* partial) {
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
