// The chain of layers of the published network: y = leaky(A' x W + b), then a GRU cell whose input is x and whose
// hidden state is y. Forward and backward, for groups of whole graphs that fit in a core's own cache.
#include "panels.h"

using namespace driple;

namespace {

constexpr float SLOPE = 0.01f;

struct Sizes {
  int graphs, nodes, features, hidden, threads;
  int panels() const { return hidden / WIDE; }
};

// Weights as torch keeps them: of the first layer, of the others, and of the cell (gates in the order r, z, n).
struct Weights {
  const float *w0, *b0, *w, *b, *wih, *whh, *bih, *bhh;
};
struct Gradients {
  float *w0, *b0, *w, *b, *wih, *whh, *bih, *bhh;
};

// Graphs that go through the chain together: neighbours in the batch, of one depth.
struct Group {
  int first, count, rows, depth;
  long tape;
};

// What backward needs of one layer, in floats: the gates r, z, n, then y, then the cell's hidden part of n, and the
// state after the layer.
long slot(const Sizes& s, const Group& g) { return 6L * s.hidden * g.rows; }

std::vector<Group> groups_of(const Sizes& s, const int64_t* sizes, const int64_t* depths) {
  constexpr int ROWS = 96;
  std::vector<Group> groups;
  for (int b = 0; b < s.graphs; ++b) {
    const int size = (int)sizes[b], depth = (int)depths[b];
    if (groups.empty() || groups.back().depth != depth || groups.back().rows + size > ROWS)
      groups.push_back({b, 0, 0, depth, 0});
    groups.back().count += 1;
    groups.back().rows += size;
  }
  long offset = 0;
  for (auto& g : groups) {
    g.tape = offset;
    offset += slot(s, g) * g.depth + (long)s.hidden * g.rows;
  }
  return groups;
}

// Neighbours and weights of the group's rows.
struct Sparse {
  std::vector<int> start, column;
  std::vector<float> value;
  Sparse(const Sizes& s, const Group& g, const int64_t* sizes, const float* norm) : start(1, 0) {
    int base = 0;
    for (int b = g.first; b < g.first + g.count; ++b) {
      const int size = (int)sizes[b];
      for (int i = 0; i < size; ++i) {
        const float* row = norm + ((long)b * s.nodes + i) * s.nodes;
        for (int j = 0; j < size; ++j)
          if (row[j] != 0) column.push_back(base + j), value.push_back(row[j]);
        start.push_back((int)column.size());
      }
      base += size;
    }
  }
  // to = A' from (+ bias, and the activation, where there is a bias)
  void sum(float* to, const float* from, const float* bias, int rows, int panels) const {
    for (int p = 0; p < panels; ++p) {
      const float* in = from + (long)p * rows * WIDE;
      for (int i = 0; i < rows; ++i) {
        Vec total[PARTS] = {};
        if (bias)
          for (int v = 0; v < PARTS; ++v) total[v] = load(bias + p * WIDE + v * LANES);
        for (int e = start[i]; e < start[i + 1]; ++e)
          for (int v = 0; v < PARTS; ++v) total[v] += value[e] * load(in + (long)column[e] * WIDE + v * LANES);
        for (int v = 0; v < PARTS; ++v) {
          if (bias) total[v] = total[v] > 0.0f ? total[v] : total[v] * SLOPE;
          store(to + ((long)p * rows + i) * WIDE + v * LANES, total[v]);
        }
      }
    }
  }
};

// The weights in panels. Columns of `x` are r, z, n, m with m the layer's own; of `h`: n, r, z. And their transposes.
struct Packed {
  std::vector<float> x0, x, h, x0_back, x_back, h_back, bias_x, bias_hn;
  Packed(const Sizes& s, const Weights& w) {
    const int H = s.hidden;
    const long square = (long)H * H;
    x.resize(4 * square), h.resize(3 * square), x_back.resize(4 * square), h_back.resize(3 * square);
    bias_x.resize(4 * H), bias_hn.assign(w.bhh + 2 * H, w.bhh + 3 * H);
    pack(x.data(), H, w.wih, H, 3 * H, 1, H);
    x0 = x;
    pack(x.data() + 3 * square, H, w.w, H, H, H, 1);
    pack(x0.data() + 3 * square, H, w.w0, s.features, H, H, 1);
    pack(h.data(), H, w.whh + 2 * square, H, H, 1, H);
    pack(h.data() + square, H, w.whh, H, 2 * H, 1, H);
    pack(x_back.data(), 4 * H, w.wih, 3 * H, H, H, 1);
    x0_back = x_back;
    pack(x0_back.data() + 3L * H * WIDE, 4 * H, w.w0, H, s.features, 1, H);
    pack(x_back.data() + 3L * H * WIDE, 4 * H, w.w, H, H, 1, H);
    pack(h_back.data(), 3 * H, w.whh + 2 * square, H, H, H, 1);
    pack(h_back.data() + (long)H * WIDE, 3 * H, w.whh, 2 * H, H, H, 1);
    for (int j = 0; j < 3 * H; ++j) bias_x[j] = w.bih[j] + (j < 2 * H ? w.bhh[j] : 0);
  }
};

// Where one layer's values are.
struct Layer {
  float *gates, *y, *hidden_n, *after;
  Layer(float* at, long matrix) : gates(at), y(at + 3 * matrix), hidden_n(at + 4 * matrix), after(at + 5 * matrix) {}
};

void layer_forward(const Sizes& s, const Packed& w, const Sparse& near, const float* b, bool first, const float* x,
                   const Layer& to, float* m, int rows) {
  const int P = s.panels();
  const long matrix = (long)s.hidden * rows, square = (long)s.hidden * s.hidden;
  const float* right = first ? w.x0.data() : w.x.data();
  product(m, rows, x, rows, right + 3 * square, rows, P, P, nullptr, false);
  product(to.gates, rows, x, rows, right, rows, P, 3 * P, w.bias_x.data(), false);
  near.sum(to.y, m, b, rows, P);
  product(to.hidden_n, rows, to.y, rows, w.h.data(), rows, P, P, w.bias_hn.data(), false);
  product(to.gates, rows, to.y, rows, w.h.data() + square, rows, P, 2 * P, nullptr, true);
  for (long i = 0; i < matrix; i += LANES) {
    const Vec r = sigmoid(load(to.gates + i)), z = sigmoid(load(to.gates + matrix + i));
    const Vec n = tanh(load(to.gates + 2 * matrix + i) + r * load(to.hidden_n + i));
    store(to.gates + i, r), store(to.gates + matrix + i, z), store(to.gates + 2 * matrix + i, n);
    store(to.after + i, n + z * (load(to.y + i) - n));
  }
}

// One group's gradients, in panels.
struct Partial {
  std::vector<float> all;
  float *x, *m0, *m, *h, *bias, *bias_m0, *bias_m;  // bias: of the hidden n, then r, z, n
  explicit Partial(int H) : all(8L * H * H + 6 * H) {
    const long square = (long)H * H;
    x = all.data(), m = x + 3 * square, m0 = m + square, h = m0 + square;
    bias = h + 3 * square, bias_m0 = bias + 4 * H, bias_m = bias_m0 + H;
  }
};

// From the gradient g of the cell's result: those of the gates before their activations, d = hidden n, r, z, n, and
// what goes straight to y.
void cell_backward(const Layer& at, const float* g, float* d, float* dy, long matrix) {
  float *hidden_n = d, *r_at = d + matrix, *z_at = d + 2 * matrix, *n_at = d + 3 * matrix;
  for (long i = 0; i < matrix; i += LANES) {
    const Vec r = load(at.gates + i), z = load(at.gates + matrix + i), n = load(at.gates + 2 * matrix + i);
    const Vec up = load(g + i), through = up * z;
    const Vec dn = (up - through) * (1.0f - n * n);
    store(dy + i, through), store(n_at + i, dn), store(hidden_n + i, dn * r);
    store(r_at + i, dn * load(at.hidden_n + i) * (r - r * r));
    store(z_at + i, (load(at.y + i) - n) * through * (1.0f - z));
  }
}

// g: the gradient of the layer's result, and on return that of x. d and dy are scratch of five matrices and one.
void layer_backward(const Sizes& s, const Packed& w, const Sparse& near, bool first, const float* x, const Layer& at,
                    float* g, float* d, float* dy, Partial& to, int rows) {
  const int P = s.panels();
  const long matrix = (long)s.hidden * rows;
  float *r_at = d + matrix, *m_at = d + 4 * matrix;
  cell_backward(at, g, d, dy, matrix);
  product(dy, rows, d, rows, w.h_back.data(), rows, 3 * P, P, nullptr, true);
  for (long i = 0; i < matrix; i += LANES) {
    const Vec up = load(dy + i);
    store(dy + i, load(at.y + i) > 0.0f ? up : up * SLOPE);
  }
  near.sum(m_at, dy, nullptr, rows, P);
  add_columns(first ? to.bias_m0 : to.bias_m, dy, rows, rows, P);
  add_columns(to.bias, d, rows, rows, 4 * P);
  gradient(to.h, at.y, rows, P, d, rows, 3 * P, rows);
  gradient(to.x, x, rows, P, r_at, rows, 3 * P, rows);
  gradient(first ? to.m0 : to.m, x, rows, P, m_at, rows, P, rows);
  product(g, rows, r_at, rows, first ? w.x0_back.data() : w.x_back.data(), rows, 4 * P, P, nullptr, false);
}

// Rows of the group's graphs, between a padded batch and panels.
template <class Copy>
void each_graph(const Sizes& s, const Group& g, const int64_t* sizes, Copy copy) {
  long row = 0;
  for (int b = g.first; b < g.first + g.count; row += sizes[b++]) copy((long)b * s.nodes, row * WIDE, (int)sizes[b]);
}

}  // namespace

extern "C" {

// Floats of tape that a batch needs.
long driple_chain_tape(const Sizes* s, const int64_t* sizes, const int64_t* depths) {
  const auto groups = groups_of(*s, sizes, depths);
  const Group& last = groups.back();
  return last.tape + slot(*s, last) * last.depth + (long)s->hidden * last.rows;
}

// x [B, N, F], norm [B, N, N] -> out [B, N, H]; rows that are padding stay as they are. `tape` may be null.
void driple_chain_forward(const Sizes* sizes_of, const int64_t* sizes, const int64_t* depths, const float* x,
                          const float* norm, const Weights* weights, float* out, float* tape) {
  const Sizes& s = *sizes_of;
  const int H = s.hidden;
  const auto groups = groups_of(s, sizes, depths);
  const Packed w(s, *weights);
  int most = 0;
  for (const auto& g : groups) most = g.rows > most ? g.rows : most;
  parallel((int)groups.size(), s.threads, 14L * H * most, [&](int task, float* scratch) {
    const Group& g = groups[task];
    const long matrix = (long)H * g.rows;
    const Sparse near(s, g, sizes, norm);
    float* m = scratch;
    float* start = tape ? tape + g.tape : m + matrix;
    std::memset(start, 0, matrix * sizeof(float));
    each_graph(s, g, sizes, [&](long from, long to, int rows) {
      pack(start + to, g.rows, x + from * s.features, rows, s.features, s.features, 1);
    });
    const float* state = start;
    for (int k = 0; k < g.depth; ++k) {
      // without a tape, two places in turn
      const Layer layer(start + matrix + (tape ? k : k % 2) * 6 * matrix, matrix);
      layer_forward(s, w, near, k ? weights->b : weights->b0, !k, state, layer, m, g.rows);
      state = layer.after;
    }
    each_graph(s, g, sizes, [&](long to, long from, int rows) {
      unpack(out + to * H, state + from, g.rows, rows, H, H, 1);
    });
  });
}

// up [B, N, H]: gradient of the output -> dx [B, N, F], whose rows that are padding stay as they are (or null), and
// gradients of the weights.
void driple_chain_backward(const Sizes* sizes_of, const int64_t* sizes, const int64_t* depths, const float* up,
                           const float* norm, const Weights* weights, const float* tape, float* dx,
                           const Gradients* to) {
  const Sizes& s = *sizes_of;
  const int H = s.hidden;
  const auto groups = groups_of(s, sizes, depths);
  const Packed w(s, *weights);
  int most = 0;
  for (const auto& g : groups) most = g.rows > most ? g.rows : most;
  std::vector<Partial> partials;
  for (size_t i = 0; i < groups.size(); ++i) partials.emplace_back(H);
  parallel((int)groups.size(), s.threads, 7L * H * most, [&](int task, float* scratch) {
    const Group& g = groups[task];
    const long matrix = (long)H * g.rows;
    const Sparse near(s, g, sizes, norm);
    float *d = scratch, *dy = d + 5 * matrix, *gradient_up = dy + matrix;
    each_graph(s, g, sizes, [&](long from, long row, int rows) {
      pack(gradient_up + row, g.rows, up + from * H, rows, H, H, 1);
    });
    float* start = const_cast<float*>(tape) + g.tape;
    for (int k = g.depth - 1; k >= 0; --k) {
      const Layer layer(start + matrix + k * 6 * matrix, matrix);
      const float* x = k ? Layer(start + matrix + (k - 1) * 6 * matrix, matrix).after : start;
      layer_backward(s, w, near, !k, x, layer, gradient_up, d, dy, partials[task], g.rows);
    }
    if (dx)
      each_graph(s, g, sizes, [&](long to_row, long row, int rows) {
        unpack(dx + to_row * s.features, gradient_up + row, g.rows, rows, s.features, s.features, 1);
      });
  });
  Partial& sum = partials[0];
  for (size_t i = 1; i < partials.size(); ++i)
    for (size_t j = 0; j < sum.all.size(); ++j) sum.all[j] += partials[i].all[j];
  const long square = (long)H * H;
  unpack(to->wih, sum.x, H, H, 3 * H, 1, H);
  unpack(to->w, sum.m, H, H, H, H, 1);
  unpack(to->w0, sum.m0, H, s.features, H, H, 1);
  unpack(to->whh + 2 * square, sum.h, H, H, H, 1, H);
  unpack(to->whh, sum.h + square, H, H, 2 * H, 1, H);
  std::memcpy(to->b, sum.bias_m, H * sizeof(float));
  std::memcpy(to->b0, sum.bias_m0, H * sizeof(float));
  std::memcpy(to->bih, sum.bias + H, 3 * H * sizeof(float));
  std::memcpy(to->bhh, sum.bias + H, 2 * H * sizeof(float));
  std::memcpy(to->bhh + 2 * H, sum.bias, H * sizeof(float));
}
}
