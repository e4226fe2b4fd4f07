// Dividing the work of a kernel over threads, the same for every thread count, so that results are bit-identical.
#pragma once

#include <functional>

#include "rows.h"

namespace dorylax {

// Runs job(0) … job(n-1), each exactly once, on any threads, and returns when all have finished.
using ParallelFor = std::function<void(int64_t n, const std::function<void(int64_t)>& job)>;

// The kernels of the best instruction set of this processor, or of the one chosen by `choose_kernels`.
const Kernels& active_kernels();
// Chooses by name ("avx512", "avx2", "baseline"; "" for the best); false where it cannot run here.
bool choose_kernels(const char* name);

// Reduces rows [begin, end).
void reduce(Op op, Dtype dtype, const Rows& rows, int64_t begin, int64_t end, const ParallelFor& parallel_for);
void attend(Attend pass, Dtype dtype, const Attention& call, int64_t num_rows, const ParallelFor& parallel_for);
void per_entry(PerEntry kernel, const Rows& rows, int64_t num_rows, const ParallelFor& parallel_for);

}  // namespace dorylax
