// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "warprank/engine/check_bind.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/host/context.hpp"
#include "warprank/engine/host/make_steps.hpp"
#include "warprank/engine/host/table_store.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

class HostModel : public ModelBackend {
 public:
  HostModel(const Plan& plan, const Weights& weights, std::shared_ptr<const TableStore> tables,
            const BindOptions& options) {
    detail::check_parameters(plan, weights, options.custom, "custom", options.extra);
    auto data = std::make_shared<HostModelData>(HostModelData{plan, tables, {}, {}, {}, {}, {}, {}});
    Binder binder(data->plan, weights, dynamic_cast<const HostTableStore&>(*tables), options);
    data->steps = make_steps(data->plan.storage(), binder);
    for (const OutputInfo& output : plan.graph().outputs)
      data->output_pairs.push_back(binder.pairs.index_of(plan.graph().node(output.node).axis, 0));
    data->pairs = binder.pairs.list();
    data->used_ids = std::move(binder.used_ids);
    for (size_t n = 0; n < plan.graph().nodes.size(); ++n)
      if (std::holds_alternative<DenseOp>(plan.graph().nodes[n].op)) data->dense_nodes.push_back(static_cast<int>(n));
    data->description = describe(options.host_precision, binder.precision);
    data_ = std::move(data);
  }

  std::unique_ptr<ContextBackend> make_context(const ContextOptions& options) const override {
    return std::make_unique<HostContext>(data_, options, ContextThreads::of(options));
  }
  const TableStore* tables() const override { return data_->tables.get(); }
  MemoryReport memory() const override {
    MemoryReport report = data_->tables->memory();
    int64_t weights = 0;
    for (const auto& step : data_->steps) weights += step->bytes();
    report.emplace_back("weights", weights);
    return report;
  }
  std::string describe() const override { return data_->description; }
  const std::shared_ptr<const HostModelData>& data() const { return data_; }

 private:
  static std::string describe(HostPrecision asked, host_ops::Precision taken) {
    const bool is_bf16 = taken == host_ops::Precision::bf16;
    std::string text = std::string("instruction set ") + host_ops::linear_target().name + "; precision ";
    text += !is_bf16 ? "fp32" : host_ops::has_amx_products() ? "bf16 by AMX" : "bf16";
    if (asked == HostPrecision::int8_weights)
      text += std::string(", weights int8, as asked for: there is ") + (is_bf16 ? "" : "no ") + "AVX512_BF16";
    else if (asked == HostPrecision::automatic)
      text += is_bf16 ? ", automatically: there is AVX512_BF16" : ", automatically: there is no AVX512_BF16";
    else if (asked == HostPrecision::bf16 && !is_bf16)
      text += " in the place of bf16: there is no AVX512_BF16";
    else
      text += ", as asked for";
    return text + "\n";
  }

  std::shared_ptr<const HostModelData> data_;
};

inline void HostContext::rebind(std::shared_ptr<const ModelBackend> next) {
  const auto* model = dynamic_cast<const HostModel*>(next.get());
  if (model == nullptr) throw invalid_argument("Context::rebind", "a model of the host engine", "one of another");
  model_ = model->data();  // of the same plan, so that all else fits
  values_.graph = &model_->plan.graph();
}

}}}  // namespace warprank::v0::host_backend
