#include "dist/space.h"

namespace forge::dist {

Group::Group(const Bootstrap& bootstrap, const Options& options)
    : space_(std::make_unique<detail::Space>(bootstrap, options)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

int Group::rank() const { return space_->rank(); }
int Group::size() const { return space_->size(); }
void Group::check() const { space_->check(); }
void Group::abort() { space_->abort(); }
std::string Group::describe() const { return space_->describe(); }

}  // namespace forge::dist
