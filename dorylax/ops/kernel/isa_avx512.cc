// 512-bit vectors; CMake compiles this file alone with AVX-512 flags.
#include "rows.h"

#if defined(__AVX512F__)
#define DORYLAX_ISA avx512
#define DORYLAX_BYTES 64
#define DORYLAX_REGISTERS 16
#include "kernels.inl"

namespace dorylax {
const Kernels* kernels_avx512() {
  const bool runs = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return runs ? &avx512::kTable : nullptr;
}
}  // namespace dorylax
#else
namespace dorylax {
const Kernels* kernels_avx512() { return nullptr; }
}  // namespace dorylax
#endif
