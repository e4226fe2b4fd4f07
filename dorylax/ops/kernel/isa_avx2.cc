// 256-bit vectors; CMake compiles this file alone with AVX2 flags.
#include "rows.h"

#if defined(__AVX2__)
#define DORYLAX_ISA avx2
#define DORYLAX_BYTES 32
#define DORYLAX_REGISTERS 8
#include "kernels.inl"

namespace dorylax {
const Kernels* kernels_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2::kTable : nullptr;
}
}  // namespace dorylax
#else
namespace dorylax {
const Kernels* kernels_avx2() { return nullptr; }
}  // namespace dorylax
#endif
