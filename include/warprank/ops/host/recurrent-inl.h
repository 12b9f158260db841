// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// state [H] becomes the state behind an event: `gates` [3 H] of the event, and `products` [3 H] of the state.
inline void recurrent_step(RecurrentCell cell, const float* gates, const float* products, float share, int64_t hidden,
                           float* state) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto shares = hn::Set(d, share);
  for (int64_t c = 0; c < hidden; c += lanes) {
    const size_t count = static_cast<size_t>(std::min(lanes, hidden - c));
    const auto of = [&](const float* from, int64_t which)
                        HWY_ATTR { return load_first(d, from + which * hidden + c, count); };
    const auto r = sigmoid(d, hn::Add(of(gates, 0), of(products, 0)));
    const auto n = tanh(d, hn::MulAdd(r, of(products, 2), of(gates, 2)));
    const auto h = load_first(d, state + c, count);
    auto taken = shares;  // of n, and for a GRU kept of h
    if (cell != RecurrentCell::agru) {
      const auto z = sigmoid(d, hn::Add(of(gates, 1), of(products, 1)));
      taken = cell == RecurrentCell::gru ? z : hn::Mul(shares, z);
    }
    const auto next =
        cell == RecurrentCell::gru ? hn::MulAdd(taken, hn::Sub(h, n), n) : hn::MulAdd(taken, hn::Sub(n, h), h);
    store_first(next, d, state + c, count);
  }
}

/// shares [T] = softmax of scale <q, k_t>. k [T, K], T > 0.
inline void recurrent_shares(const float* q, Matrix<const float> k, float scale, float* shares) {
  for (int64_t t = 0; t < k.rows; ++t) shares[t] = dot_product(q, k.row(t), k.cols);
  finite_softmax(scale, shares, k.rows);
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
