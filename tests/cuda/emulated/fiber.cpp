#undef _FORTIFY_SOURCE  // its longjmp takes other stacks for mistakes
#include "tests/cuda/emulated/fiber.h"

#include <utility>

namespace forge::emulated {
namespace {

constexpr std::size_t kStackBytes = 1 << 16;
thread_local Fiber* entering = nullptr;

}  // namespace

void Fiber::start(const std::function<void()>& body) {
    body_ = &body;
    entered_ = ended_ = false;
    if (!stack_) stack_ = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    getcontext(&first_);
    first_.uc_stack.ss_sp = stack_.get();
    first_.uc_stack.ss_size = kStackBytes;
    makecontext(&first_, enter, 0);
}

void Fiber::resume() {
    if (_setjmp(back_) == 0) {
        if (entered_) _longjmp(here_, 1);
        entering = this;
        setcontext(&first_);
    }
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Fiber::leave() {
    if (_setjmp(here_) == 0) _longjmp(back_, 1);
}

void Fiber::enter() { entering->run(); }

void Fiber::run() {
    entered_ = true;
    try {
        (*body_)();
    } catch (...) {
        thrown_ = std::current_exception();
    }
    ended_ = true;
    _longjmp(back_, 1);
}

}  // namespace forge::emulated
