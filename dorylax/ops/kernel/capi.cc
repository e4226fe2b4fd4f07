// The kernels on plain buffers and row ranges, for callers with threads of their own (ctypes drops Python's lock).
#include <cstdint>
#include <limits>

#include "schedule.h"

#define DORYLAX_EXPORT __attribute__((visibility("default")))

extern "C" {

// Raised whenever a signature below, an operation's number or an XLA handler changes; dorylax/ops/native.py checks it.
DORYLAX_EXPORT int32_t dorylax_abi() { return 1; }

DORYLAX_EXPORT const char* dorylax_instruction_set() { return dorylax::active_kernels().name; }

DORYLAX_EXPORT int32_t dorylax_choose_instruction_set(const char* name) { return dorylax::choose_kernels(name); }

// Reduces rows [begin, end) into out[begin, end) on the calling thread. Arguments are trusted: native.py checks them.
DORYLAX_EXPORT void dorylax_reduce_rows(int32_t op, int32_t dtype, const void* x, const void* weight, const int64_t* offsets,
                         const int32_t* neighbours, const int32_t* edges, int64_t num_entries, int64_t heads,
                         int64_t width, int64_t begin, int64_t end, void* out) {
  dorylax::Rows rows = {};
  rows.offsets = offsets;
  rows.neighbours = neighbours;
  rows.edges = edges;
  rows.num_entries = num_entries;
  rows.x = x;
  rows.weight = weight;
  rows.out = out;
  rows.heads = heads;
  rows.width = width;
  dorylax::active_kernels().reduce[op][dtype](rows, begin, end, std::numeric_limits<int64_t>::max());
}

}  // extern "C"
