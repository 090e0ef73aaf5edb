#include "trainyard/parallel/servers/parameter_server.h"

#include <utility>

#include "trainyard/parallel/servers/server_service.h"

namespace trainyard::parallel {

ParameterServer::ParameterServer(ParameterServerOptions options, MakeOptimizers make_optimizers)
    : service_(std::make_unique<Service>(std::move(options), std::move(make_optimizers))) {}

ParameterServer::~ParameterServer() = default;

uint16_t ParameterServer::port() const {
  return service_->port();
}

void ParameterServer::wait() {
  service_->wait();
}

void ParameterServer::fail(const core::Error& error) {
  service_->fail(error);
}

ParameterServer::Status ParameterServer::status() const {
  return service_->status();
}

}  // namespace trainyard::parallel
