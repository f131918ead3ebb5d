// Small dense algebra on matrices kept as panels of 16 columns: element (i, j) of a matrix with `rows` rows is at
// [j / 16][i][j % 16]. One row of one panel is a cache line, and a product reads all three of its matrices in order.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace driple {

constexpr int WIDE = 16;
#if defined(__AVX512F__)
constexpr int LANES = 16, TALL = 12;
#elif defined(__AVX__)
constexpr int LANES = 8, TALL = 6;
#else
constexpr int LANES = 4, TALL = 6;
#endif
constexpr int PARTS = WIDE / LANES;

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));

static inline Vec load(const float* from) {
  Vec value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
static inline void store(float* to, Vec value) { std::memcpy(to, &value, sizeof value); }
static inline Vec all(float value) { return value - Vec{}; }

// exp, relative error below 2e-7: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2].
static inline Vec exp(Vec x) {
  x = x > 88.0f ? all(88.0f) : x;
  x = x < -87.0f ? all(-87.0f) : x;
  const Vec shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the low bits are now the rounded integer
  const Vec n = shifted - 12582912.0f;
  const Vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  Ints bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000;
  Vec power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}
static inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exp(-x)); }
// By exp where it is exact enough, by a polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.
static inline Vec tanh(Vec x) {
  const Vec large = 1.0f - 2.0f / (exp(x + x) + 1.0f);
  const Vec s = x * x;
  Vec p = s * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  return s < 0.390625f ? p * s * x + x : large;
}

// sum += A B for ROWS rows of A and one panel of B. A(i, k) is at a[i * row + k * step], B(k, :) at b[k * line].
template <int ROWS>
static inline __attribute__((always_inline)) void tile(
    Vec (&sum)[ROWS][PARTS], const float* a, long row, long step, const float* b, long line, int inner) {
  for (int k = 0; k < inner; ++k) {
    Vec right[PARTS];
    for (int v = 0; v < PARTS; ++v) right[v] = load(b + k * line + v * LANES);
    for (int i = 0; i < ROWS; ++i)
      for (int v = 0; v < PARTS; ++v) sum[i][v] += a[i * row + k * step] * right[v];
  }
}

template <int ROWS>
static inline void product_rows(
    float* c, const float* a, long a_rows, const float* b, int panels, const float* bias, bool add) {
  Vec sum[ROWS][PARTS];
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < PARTS; ++v)
      sum[i][v] = add ? load(c + i * WIDE + v * LANES) : bias ? load(bias + v * LANES) : Vec{};
  for (int p = 0; p < panels; ++p)
    tile<ROWS>(sum, a + p * a_rows * WIDE, WIDE, 1, b + p * WIDE * WIDE, WIDE, WIDE);
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < PARTS; ++v) store(c + i * WIDE + v * LANES, sum[i][v]);
}

template <int ROWS>
static inline void product_rest(
    int rows, float* c, const float* a, long a_rows, const float* b, int panels, const float* bias, bool add) {
  if constexpr (ROWS > 0) {
    if (rows == ROWS) return product_rows<ROWS>(c, a, a_rows, b, panels, bias, add);
    product_rest<ROWS - 1>(rows, c, a, a_rows, b, panels, bias, add);
  }
}

// C = A B + bias, or C += A B. A has `inner` panels, C has `outer`; the *_rows are the rows allocated for a panel.
static inline void product(float* c, long c_rows, const float* a, long a_rows, const float* b, int rows, int inner,
                           int outer, const float* bias, bool add) {
  for (int j = 0; j < outer; ++j) {
    const float* right = b + (long)j * inner * WIDE * WIDE;
    const float* start = bias ? bias + j * WIDE : nullptr;
    float* to = c + j * c_rows * WIDE;
    int i = 0;
    for (; i + TALL <= rows; i += TALL)
      product_rows<TALL>(to + i * WIDE, a + i * WIDE, a_rows, right, inner, start, add);
    product_rest<TALL - 1>(rows - i, to + i * WIDE, a + i * WIDE, a_rows, right, inner, start, add);
  }
}

// Not inlined: among other loops the compiler runs out of registers for the sums.
template <int ROWS>
static __attribute__((noinline)) void outer_rows(
    float* c, const float* a, long step, const float* b, long line, int inner) {
  Vec sum[ROWS][PARTS];
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < PARTS; ++v) sum[i][v] = load(c + i * WIDE + v * LANES);
  tile<ROWS>(sum, a, 1, step, b, line, inner);
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < PARTS; ++v) store(c + i * WIDE + v * LANES, sum[i][v]);
}

// C += A^T B for one panel of A and one of B: C(i, :) += sum over k of A(k, i) B(k, :). Sixteen rows are 6 + 5 + 5:
// even parts keep more sums going than 6 + 6 + 4.
static inline void outer(float* c, const float* a, long step, const float* b, long line, int inner) {
  outer_rows<6>(c, a, step, b, line, inner);
  outer_rows<5>(c + 6 * WIDE, a + 6, step, b, line, inner);
  outer_rows<5>(c + 11 * WIDE, a + 11, step, b, line, inner);
}

// C += A^T B, the gradient of a weight: `left` panels of A, `right` of B, `inner` rows of both; C has left * 16 rows.
static inline void gradient(float* c, const float* a, long a_rows, int left, const float* b, long b_rows, int right,
                            int inner) {
  for (int j = 0; j < right; ++j)
    for (int p = 0; p < left; ++p)
      outer(c + ((long)j * left + p) * WIDE * WIDE, a + p * a_rows * WIDE, WIDE, b + j * b_rows * WIDE, WIDE, inner);
}

template <int PANELS>
static inline void vector_panels(float* c, const float* a, const float* b, long rows) {
  Vec sum[PANELS][PARTS] = {};
  for (long k = 0; k < rows; ++k)
    for (int p = 0; p < PANELS; ++p)
      for (int v = 0; v < PARTS; ++v) sum[p][v] += a[k] * load(b + (p * rows + k) * WIDE + v * LANES);
  for (int p = 0; p < PANELS; ++p)
    for (int v = 0; v < PARTS; ++v) store(c + p * WIDE + v * LANES, sum[p][v]);
}

// c = a B for a vector a. Several panels at once, since one alone would wait for its own sums.
static inline void vector_product(float* c, const float* a, const float* b, long rows, int panels) {
  int p = 0;
  for (; p + 4 <= panels; p += 4) vector_panels<4>(c + p * WIDE, a, b + p * rows * WIDE, rows);
  for (; p < panels; ++p) vector_panels<1>(c + p * WIDE, a, b + p * rows * WIDE, rows);
}

// Column sums: to[j] += sum over i of A(i, j).
static inline void add_columns(float* to, const float* a, long a_rows, int rows, int panels) {
  for (int p = 0; p < panels; ++p)
    for (int v = 0; v < WIDE; v += LANES) {
      Vec sum = load(to + p * WIDE + v);
      for (int i = 0; i < rows; ++i) sum += load(a + (p * a_rows + i) * WIDE + v);
      store(to + p * WIDE + v, sum);
    }
}

// Into panels, from a matrix whose element (i, j) is at from[i * row + j * column].
static inline void pack(float* to, long to_rows, const float* from, int rows, int columns, long row, long column) {
  for (int j = 0; j < columns; ++j)
    for (int i = 0; i < rows; ++i) to[((j / WIDE) * to_rows + i) * WIDE + j % WIDE] = from[i * row + j * column];
}
static inline void unpack(float* to, const float* from, long from_rows, int rows, int columns, long row, long column) {
  for (int j = 0; j < columns; ++j)
    for (int i = 0; i < rows; ++i) to[i * row + j * column] = from[((j / WIDE) * from_rows + i) * WIDE + j % WIDE];
}

// Calls work(task, scratch) for every task. Tasks are taken as threads become free; what a task writes is its own, so
// that sums are made afterwards in the order of tasks and do not depend on the threads. By OpenMP if there is one: its
// threads are then those of torch. Others would have to share their cores with torch's, which spin for a while.
template <class Work>
static void parallel(int tasks, int threads, size_t scratch, Work work) {
  std::atomic<int> next(0);
  auto run = [&] {
    std::vector<float> own(scratch);
    for (int task = next++; task < tasks; task = next++) work(task, own.data());
  };
  threads = threads < tasks ? threads : tasks;
  if (threads <= 1) return run();
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
  run();
#else
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(run);
  run();
  for (auto& other : others) other.join();
#endif
}

}  // namespace driple
