// The kernels on plain buffers and row ranges, for callers with threads of their own (ctypes drops Python's lock).
//
// Each function computes rows [begin, end) on the calling thread. Arguments are trusted: Python checks them.
#include <algorithm>
#include <cstdint>
#include <functional>

#include "schedule.h"

#define DORYLAX_EXPORT __attribute__((visibility("default")))

extern "C" {

// Raised whenever a signature below, a field of Rows, an operation's number or an XLA handler changes;
// dorylax/ops/native.py checks it.
DORYLAX_EXPORT int32_t dorylax_abi() { return 7; }

DORYLAX_EXPORT const char* dorylax_instruction_set() { return dorylax::active_kernels().name; }

DORYLAX_EXPORT int32_t dorylax_choose_instruction_set(const char* name) { return dorylax::choose_kernels(name); }

// Reduces rows into out[begin, end).
DORYLAX_EXPORT void dorylax_reduce_rows(int32_t op, int32_t dtype, const dorylax::Rows* rows, int64_t begin, int64_t end) {
  dorylax::reduce(static_cast<dorylax::Op>(op), static_cast<dorylax::Dtype>(dtype), *rows, begin, end,
                  [](int64_t n, const std::function<void(int64_t)>& job) {
                    for (int64_t i = 0; i < n; ++i) job(i);
                  });
}

// Products of each entry's two ends.
DORYLAX_EXPORT void dorylax_dot_rows(int32_t dtype, const dorylax::Rows* rows, int64_t begin, int64_t end) {
  dorylax::active_kernels().dot[dtype](*rows, begin, end, rows->offsets[begin], rows->offsets[end]);
}

// Copies of each entry's neighbour, or of its own row where neighbours is null.
DORYLAX_EXPORT void dorylax_expand_rows(int32_t dtype, const dorylax::Rows* rows, int64_t begin, int64_t end) {
  dorylax::active_kernels().expand[dtype](*rows, begin, end, rows->offsets[begin], rows->offsets[end]);
}

// Copies the neighbours of some of the rows, one row after the other.
DORYLAX_EXPORT void dorylax_pack_rows(const int64_t* offsets, const int32_t* neighbours, const int64_t* rows, int64_t count,
                                      int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = offsets[rows[i]], last = offsets[rows[i] + 1];
    out = std::copy(neighbours + first, neighbours + last, out);
  }
}

// Copies those neighbours of consecutive rows whose bits are set, and says where each row's begin. One more is written than
// is kept.
DORYLAX_EXPORT void dorylax_keep_neighbours(const int64_t* offsets, const int32_t* neighbours, int64_t count,
                                            const uint8_t* bits, int64_t* kept_offsets, int32_t* kept) {
  int32_t* out = kept;
  for (int64_t i = 0; i < count; ++i) {
    kept_offsets[i] = out - kept;
    // No branch: it would be guessed wrong as often as not.
    for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
      const uint32_t neighbour = static_cast<uint32_t>(neighbours[k]);
      *out = neighbours[k];
      out += bits[neighbour >> 3] >> (neighbour & 7) & 1;
    }
  }
  kept_offsets[count] = out - kept;
}

}  // extern "C"
