// Set2Set: q = LSTM(q*), a = softmax over nodes of x . q, r = sum of a x, q* = [q, r]; forward and backward, for a few
// graphs at a time, so that each read of the LSTM's weights serves several.
#include "panels.h"

using namespace driple;

namespace {

struct Sizes {
  int graphs, nodes, hidden, threads;
  int panels() const { return hidden / WIDE; }
};

// Weights as torch keeps them (gates in the order i, f, g, o). q is both half of the LSTM's input and its hidden state,
// so that two of its weights always act as their sum.
struct Weights {
  const float *wih, *whh, *bih, *bhh;
};
struct Gradients {
  float *wih, *whh, *bih, *bhh;
};

int padded(int64_t size) { return (int)((size + WIDE - 1) / WIDE * WIDE); }

// Graphs that go together: neighbours in the batch, of one number of steps.
struct Group {
  int first, count, steps, nodes;  // nodes: of all, each graph's filled up to whole panels
  long tape;
  long floats(int H) const { return (long)H * count * (7L * steps + 3) + (long)steps * nodes; }
};

std::vector<Group> groups_of(const Sizes& s, const int64_t* sizes, const int64_t* steps) {
  constexpr int MOST = 4;
  std::vector<Group> groups;
  for (int b = 0; b < s.graphs; ++b) {
    if (groups.empty() || groups.back().steps != steps[b] || groups.back().count == MOST)
      groups.push_back({b, 0, (int)steps[b], 0, 0});
    groups.back().count += 1;
    groups.back().nodes += padded(sizes[b]);
  }
  long offset = 0;
  for (auto& g : groups) g.tape = offset, offset += g.floats(s.hidden);
  return groups;
}

// What backward needs: a row for every step and graph, one step after the other.
struct Tape {
  float *found, *memory, *gates, *weights;  // q* and the LSTM's memory before and after each step; a of each step
  long after, during;                       // rows of `found` and `memory`; of `gates`
  Tape(float* at, const Group& g, int H) : after((g.steps + 1L) * g.count), during((long)g.steps * g.count) {
    found = at, memory = found + 2 * H * after, gates = memory + H * after, weights = gates + 4 * H * during;
  }
};

struct Packed {
  std::vector<float> forward, backward, bias;
  Packed(const Sizes& s, const Weights& w) {
    const int H = s.hidden;
    std::vector<float> sum(w.wih, w.wih + 8L * H * H);  // [4H, 2H]
    for (int i = 0; i < 4 * H; ++i)
      for (int j = 0; j < H; ++j) sum[2L * i * H + j] += w.whh[(long)i * H + j];
    forward.resize(8L * H * H), backward.resize(8L * H * H), bias.resize(4 * H);
    pack(forward.data(), 2 * H, sum.data(), 2 * H, 4 * H, 1, 2 * H);
    pack(backward.data(), 4 * H, sum.data(), 4 * H, 2 * H, 2 * H, 1);
    for (int j = 0; j < 4 * H; ++j) bias[j] = w.bih[j] + w.bhh[j];
  }
};

// One graph's states, by node and by channel: both products with them then run along memory.
struct Nodes {
  int size, wide;
  long at;  // its first place in the group's attention weights
  std::vector<float> rows, channels;
  Nodes(const float* x, int size, int H, long at) : size(size), wide(padded(size)), at(at) {
    rows.resize((long)H * size), channels.resize((long)H * wide);
    pack(rows.data(), size, x, size, H, H, 1);
    pack(channels.data(), H, x, H, size, 1, H);
  }
};

std::vector<Nodes> nodes_of(const Sizes& s, const Group& g, const int64_t* sizes, const float* x) {
  std::vector<Nodes> nodes;
  long at = 0;
  for (int b = g.first; b < g.first + g.count; ++b) {
    nodes.emplace_back(x + (long)b * s.nodes * s.hidden, (int)sizes[b], s.hidden, at);
    at += nodes.back().wide;
  }
  return nodes;
}

// One graph's row of a matrix in panels, to and from a plain vector.
void take(float* to, const float* from, long rows, int panels) {
  for (int p = 0; p < panels; ++p) std::memcpy(to + p * WIDE, from + p * rows * WIDE, WIDE * sizeof(float));
}
void put(float* to, long rows, const float* from, int panels) {
  for (int p = 0; p < panels; ++p) std::memcpy(to + p * rows * WIDE, from + p * WIDE, WIDE * sizeof(float));
}

void softmax(float* scores, int size, int wide) {
  for (int i = size; i < wide; ++i) scores[i] = -1e30f;
  float largest = scores[0];
  for (int i = 1; i < size; ++i) largest = scores[i] > largest ? scores[i] : largest;
  for (int i = 0; i < wide; i += LANES) store(scores + i, exp(load(scores + i) - largest));
  float total = 0;
  for (int i = 0; i < size; ++i) total += scores[i];
  for (int i = 0; i < wide; ++i) scores[i] = i < size ? scores[i] / total : 0.0f;
}

void forward(const Sizes& s, const Group& g, const Packed& w, const std::vector<Nodes>& nodes, const Tape& tape) {
  const int P = s.panels(), H = s.hidden, G = g.count;
  std::vector<float> query(H), read(H);
  for (int p = 0; p < 3 * P; ++p) std::memset(tape.found + p * tape.after * WIDE, 0, G * WIDE * sizeof(float));
  for (int t = 0; t < g.steps; ++t) {
    const long row = (long)t * G * WIDE, next = row + G * WIDE;
    product(tape.gates + row, tape.during, tape.found + row, tape.after, w.forward.data(), G, 2 * P, 4 * P,
            w.bias.data(), false);
    for (int p = 0; p < P; ++p) {
      float* gate = tape.gates + p * tape.during * WIDE + row;
      const long apart = P * tape.during * WIDE;
      float* memory = tape.memory + p * tape.after * WIDE;
      for (int i = 0; i < G * WIDE; i += LANES) {
        const Vec enter = sigmoid(load(gate + i)), forget = sigmoid(load(gate + apart + i));
        const Vec candidate = tanh(load(gate + 2 * apart + i)), leave = sigmoid(load(gate + 3 * apart + i));
        const Vec kept = forget * load(memory + row + i) + enter * candidate;
        store(gate + i, enter), store(gate + apart + i, forget);
        store(gate + 2 * apart + i, candidate), store(gate + 3 * apart + i, leave);
        store(memory + next + i, kept), store(tape.found + p * tape.after * WIDE + next + i, leave * tanh(kept));
      }
    }
    for (int b = 0; b < G; ++b) {
      const Nodes& own = nodes[b];
      float* weights = tape.weights + (long)t * g.nodes + own.at;
      float* found = tape.found + next + b * WIDE;
      take(query.data(), found, tape.after, P);
      vector_product(weights, query.data(), own.channels.data(), H, own.wide / WIDE);
      softmax(weights, own.size, own.wide);
      vector_product(read.data(), weights, own.rows.data(), own.size, P);
      put(found + P * tape.after * WIDE, tape.after, read.data(), P);
    }
  }
}

struct Partial {
  std::vector<float> weight, bias;
};

void backward(const Sizes& s, const Group& g, const Packed& w, const std::vector<Nodes>& nodes, const Tape& tape,
              const float* up, float* dx, Partial& to) {
  const int P = s.panels(), H = s.hidden, G = g.count;
  std::vector<float> d(2L * H * G), d_memory((long)H * G), d_gates(4L * H * tape.during), d_read(H * tape.during);
  std::vector<float> d_scores((long)g.steps * g.nodes), one(H), scratch(H);
  for (int b = 0; b < G; ++b) put(d.data() + b * WIDE, G, up + 2L * (g.first + b) * H, 2 * P);
  for (int t = g.steps - 1; t >= 0; --t) {
    const long row = (long)t * G * WIDE, next = row + G * WIDE;
    for (int b = 0; b < G; ++b) {
      const Nodes& own = nodes[b];
      const float* weights = tape.weights + (long)t * g.nodes + own.at;
      float* scores = d_scores.data() + (long)t * g.nodes + own.at;
      take(one.data(), d.data() + (P * G + b) * WIDE, G, P);
      put(d_read.data() + row + b * WIDE, tape.during, one.data(), P);
      vector_product(scores, one.data(), own.channels.data(), H, own.wide / WIDE);
      float mean = 0;
      for (int i = 0; i < own.size; ++i) mean += weights[i] * scores[i];
      for (int i = 0; i < own.wide; ++i) scores[i] = weights[i] * (scores[i] - mean);
      vector_product(scratch.data(), scores, own.rows.data(), own.size, P);
      take(one.data(), d.data() + b * WIDE, G, P);
      for (int j = 0; j < H; ++j) one[j] += scratch[j];
      put(d.data() + b * WIDE, G, one.data(), P);
    }
    for (int p = 0; p < P; ++p) {
      const long apart = P * tape.during * WIDE;
      const float* gate = tape.gates + p * tape.during * WIDE + row;
      float* d_gate = d_gates.data() + p * tape.during * WIDE + row;
      const float* memory = tape.memory + p * tape.after * WIDE;
      float* carried = d_memory.data() + p * G * WIDE;
      for (int i = 0; i < G * WIDE; i += LANES) {
        const Vec enter = load(gate + i), forget = load(gate + apart + i);
        const Vec candidate = load(gate + 2 * apart + i), leave = load(gate + 3 * apart + i);
        const Vec squashed = tanh(load(memory + next + i)), dq = load(d.data() + p * G * WIDE + i);
        const Vec dm = load(carried + i) + dq * leave * (1.0f - squashed * squashed);
        store(carried + i, dm * forget);
        store(d_gate + i, dm * candidate * (enter - enter * enter));
        store(d_gate + apart + i, dm * load(memory + row + i) * (forget - forget * forget));
        store(d_gate + 2 * apart + i, dm * enter * (1.0f - candidate * candidate));
        store(d_gate + 3 * apart + i, dq * squashed * (leave - leave * leave));
      }
    }
    if (t) product(d.data(), G, d_gates.data() + row, tape.during, w.backward.data(), G, 4 * P, 2 * P, nullptr, false);
  }
  to.weight.assign(8L * H * H, 0), to.bias.assign(4 * H, 0);
  gradient(to.weight.data(), tape.found, tape.after, 2 * P, d_gates.data(), tape.during, 4 * P, (int)tape.during);
  add_columns(to.bias.data(), d_gates.data(), tape.during, (int)tape.during, 4 * P);
  for (int b = 0; b < G; ++b) {
    const Nodes& own = nodes[b];
    std::vector<float> sum((long)H * own.wide);
    for (int p = 0; p < P; ++p)
      for (int u = 0; u < own.wide; u += WIDE) {
        float* c = sum.data() + ((long)p * own.wide + u) * WIDE;
        const long at = own.at + u, line = (long)G * WIDE;
        outer(c, tape.weights + at, g.nodes, d_read.data() + p * tape.during * WIDE + b * WIDE, line, g.steps);
        outer(c, d_scores.data() + at, g.nodes, tape.found + (p * tape.after + G + b) * WIDE, line, g.steps);
      }
    unpack(dx + (long)(g.first + b) * s.nodes * H, sum.data(), own.wide, own.size, H, H, 1);
  }
}

}  // namespace

extern "C" {

// Floats of tape that a batch needs.
long driple_set2set_tape(const Sizes* s, const int64_t* sizes, const int64_t* steps) {
  const auto groups = groups_of(*s, sizes, steps);
  return groups.back().tape + groups.back().floats(s->hidden);
}

// x [B, N, H] -> out [B, 2 H]
void driple_set2set_forward(const Sizes* s, const int64_t* sizes, const int64_t* steps, const float* x,
                            const Weights* weights, float* out, float* tape) {
  const int H = s->hidden, P = s->panels();
  const auto groups = groups_of(*s, sizes, steps);
  const Packed w(*s, *weights);
  parallel((int)groups.size(), s->threads, 0, [&](int task, float*) {
    const Group& g = groups[task];
    const Tape own(tape + g.tape, g, H);
    forward(*s, g, w, nodes_of(*s, g, sizes, x), own);
    for (int b = 0; b < g.count; ++b)
      take(out + 2L * (g.first + b) * H, own.found + ((long)g.steps * g.count + b) * WIDE, own.after, 2 * P);
  });
}

// up [B, 2 H] -> dx [B, N, H], whose rows that are padding stay as they are, and gradients of the weights.
void driple_set2set_backward(const Sizes* s, const int64_t* sizes, const int64_t* steps, const float* x,
                             const float* up, const Weights* weights, const float* tape, float* dx,
                             const Gradients* to) {
  const int H = s->hidden;
  const auto groups = groups_of(*s, sizes, steps);
  const Packed w(*s, *weights);
  std::vector<Partial> partials(groups.size());
  parallel((int)groups.size(), s->threads, 0, [&](int task, float*) {
    const Group& g = groups[task];
    const Tape own(const_cast<float*>(tape) + g.tape, g, H);
    backward(*s, g, w, nodes_of(*s, g, sizes, x), own, up, dx, partials[task]);
  });
  Partial& sum = partials[0];
  for (size_t i = 1; i < partials.size(); ++i) {
    for (size_t j = 0; j < sum.weight.size(); ++j) sum.weight[j] += partials[i].weight[j];
    for (size_t j = 0; j < sum.bias.size(); ++j) sum.bias[j] += partials[i].bias[j];
  }
  unpack(to->wih, sum.weight.data(), 2 * H, 2 * H, 4 * H, 1, 2 * H);
  unpack(to->whh, sum.weight.data(), 2 * H, H, 4 * H, 1, H);
  std::memcpy(to->bih, sum.bias.data(), 4 * H * sizeof(float));
  std::memcpy(to->bhh, sum.bias.data(), 4 * H * sizeof(float));
}
}
