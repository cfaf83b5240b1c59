/// A thread of control that runs until it leaves, with a stack of its own. All fibers and who resumes them share one OS
/// thread.
#pragma once

#include <ucontext.h>

#include <csetjmp>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

namespace forge::emulated {

class Fiber {
  public:
    /// Before it is first resumed; `body` must outlive it.
    void start(const std::function<void()>& body);
    /// Runs it until it leaves or ends. What it throws is thrown here.
    void resume();
    /// Back to who resumed it; called by the fiber itself.
    void leave();
    [[nodiscard]] bool ended() const { return ended_; }

  private:
    static void enter();
    void run();

    const std::function<void()>* body_ = nullptr;
    std::unique_ptr<std::byte[]> stack_;
    ucontext_t first_{};  ///< only to enter the stack: each use of a ucontext costs two calls of the system
    std::jmp_buf here_{}, back_{};
    std::exception_ptr thrown_;
    bool entered_ = false, ended_ = false;
};

}  // namespace forge::emulated
