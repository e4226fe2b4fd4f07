// 128-bit vectors, which every supported processor has (SSE2 on x86-64, NEON on arm64).
#define DORYLAX_ISA baseline
#define DORYLAX_BYTES 16
#define DORYLAX_REGISTERS 8
#include "kernels.inl"

namespace dorylax {
const Kernels* kernels_baseline() { return &baseline::kTable; }
}  // namespace dorylax
