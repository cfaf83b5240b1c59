/// Everything that moves between global memory and tiles: token tensors, per-head inputs, states, and the spills that
/// pass from kernel to kernel.
#pragma once

#include <functional>

#include "emit/context.h"

namespace forge::emit {

class Transfers {
  public:
    using At = std::vector<std::int64_t>;  ///< `ir::Attrs::at`, `ir::Result::at`

    explicit Transfers(Context& context) : c_(context), out_(context.out), plan_(context.plan), fn_(context.fn) {}

    void declare_tensors();  ///< one pointer per token tensor that the kernel reads or writes
    /// … reads, but for values that are read otherwise.
    void declare_inputs(const std::function<bool(ir::ValueId)>& skipped = nullptr);
    void declare_outputs(const char* task = "at");  ///< … writes
    void load_tokens(ir::ValueId v);

    /// A token tensor for a row loop: read or written where it lies if that can be, else through the value's tile.
    void read_rows(ir::ValueId v, const std::string& name);
    void write_rows(const ir::Result& r, const std::string& name);
    void store_rows(const ir::Result& r, const std::string& name);  ///< what went through the tile

    /// Which chunk a load is for: expressions for its first row, its valid rows and its spill block.
    struct Place {
        std::string row = "row", rows = "rows", block = "block";
    };
    /// A load that can be issued before its tile is free: how many registers that takes per thread, 0 if it cannot.
    [[nodiscard]] std::int64_t registers_ahead(ir::ValueId v) const;
    [[nodiscard]] std::string fetch(ir::ValueId v, const Place& place) const;
    void place(ir::ValueId v);  ///< what was fetched, into its tile

    [[nodiscard]] int tensor_of(const ir::Op& param) const;  ///< in the call
    /// ` + …`, to the task's part of the tiled axis; axes before `leading` are not among a tensor's dims.
    [[nodiscard]] std::string tile_offset(int tensor, std::size_t leading) const;
    /// ` + …`, to a part of a tensor that begins at `at`, along its last axis.
    [[nodiscard]] static std::string column_offset(int tensor, const At& at, int dim = 0);
    [[nodiscard]] static std::string state_strides(int tensor);  ///< of a matrix of states
    /// The first column of a token matrix that the task moves.
    [[nodiscard]] std::string first_column(int tensor) const;
    /// Of an axis that is shorter in memory than on chip: how many of the task's elements lie before its end, or more.
    /// Empty: all do. `from`: where the block begins that is moved, of an axis that is split into such.
    [[nodiscard]] std::string part_of(const Dim& axis, std::optional<std::int64_t> from = std::nullopt) const;
    /// The same of the last axis of a tensor, or of a part of it that begins at `at`.
    [[nodiscard]] std::string columns_of(int tensor, const At& at) const;
    /// Where a parameter lies in global memory, if a kernel before may still write it.
    [[nodiscard]] kernel::Accesses source(ir::ValueId v) const;
    [[nodiscard]] static kernel::Accesses spilled(const std::string& spill) {
        return {{kernel::Memory::Global, spill, 0, 1}};
    }
    void load_head(ir::ValueId v);
    void load_initial_state(ir::ValueId v);
    /// Whether a state can be worked on where it is stored at the end, if rows lie there as in its tile.
    [[nodiscard]] bool stays_in_memory(ir::ValueId v) const;
    /// The expression for where its tile is then.
    [[nodiscard]] std::string state_home(ir::ValueId v) const;
    void store_output(const ir::Result& r);
    void clear_outputs();  ///< those of a sequence that is skipped
    void store_final_state(const std::string& state, ir::ValueId v);
    /// Writes where a final state goes as `final`, if it goes anywhere and `elsewhere` holds too, and there `store`; of
    /// a late one `leave` instead, which leaves it in the workspace, where it is in place.
    void store_final(int tensor, const std::string& elsewhere, const std::function<void()>& store,
                     const std::function<void()>& leave);
    /// For the caller: where the states before chunks begin, the place of this chunk's as a condition, and its store.
    void declare_chunk_states();
    [[nodiscard]] std::string chunk_state(const std::string& state) const;
    void load_chunk_state(ir::ValueId v);
    void store_chunk_state(const ir::Result& r);

    /// Of a spill that is an operand, whole.
    [[nodiscard]] std::int64_t rows_of_image(const std::string& spill) const;
    /// Whether it is an image of floats, which become an operand where they are read.
    [[nodiscard]] bool is_split_later(const std::string& spill) const { return spill_slot(spill).split_later; }
    /// `_part<…>` if what a kernel holds of one, some of its rows, does not lie there in one piece; else nothing.
    [[nodiscard]] std::string part_of_image(const std::string& spill, const ir::Type& held) const;
    /// Where a block of a spill begins for this task, or a part of it that begins at `at`: scans that take part of an
    /// axis see their part.
    [[nodiscard]] std::string spill_pointer(const std::string& spill, const char* block, const At& at = {}) const;
    void declare_spill(ir::ValueId v, const std::string& spill);  ///< that is read where it lies
    void load_spill(ir::ValueId v, const std::string& spill, const char* block);
    /// What the next chunk reads is asked for between the products of this one, after each a share: all at once, it
    /// would keep the memory busy while nothing is computed. `products`: how many there are; none: asked for at once.
    void spread_requests(std::size_t products) { products_ = products; }
    void after_product();
    void store_spill(const std::string& spill, ir::ValueId v, const char* block, const At& at = {});

    /// What a task has of the tiled axis, and which of the tensor's axes after `leading` that is.
    struct Part {
        std::int64_t numbers;
        std::size_t dim;
    };
    [[nodiscard]] std::optional<Part> part_of_tile(int tensor, std::size_t leading) const;
    [[nodiscard]] bool has_tensors() const { return !token_inputs().empty() || !token_outputs().empty(); }
    /// Whether all tiles of the kernel yield a value of this (symbolic) type.
    [[nodiscard]] bool is_shared(const ir::Type& type) const { return plan_.is_shared(c_.kernel, type); }
    /// What is stored of it while this lives, one tile stores.
    class ByOne {
      public:
        ByOne(Transfers& transfers, const ir::Type& type) : out_(transfers.out_), is_(transfers.is_shared(type)) {
            if (is_) out_.open("if (at.tile == 0)");
        }
        ~ByOne() {
            if (is_) out_.close();
        }
        ByOne(const ByOne&) = delete;
        ByOne& operator=(const ByOne&) = delete;

      private:
        Writer& out_;
        bool is_;
    };

    [[nodiscard]] const plan::SpillSlot& spill_slot(const std::string& spill) const {
        return plan_.spills[static_cast<std::size_t>(plan_.spill(spill))];
    }

  private:
    /// A tensor and a tile, axis by axis.
    struct Block {
        std::string type, tile, memory;
        std::vector<std::int64_t> shape;  ///< of the tile
        std::vector<std::int64_t> tile_strides;
        std::vector<std::string> memory_strides;
        std::string rows;          ///< valid rows of axis 0
        std::string pad;           ///< empty: a store
        std::string columns = {};  ///< valid elements of the last axis; empty: all
    };
    void transfer(Block b);
    void store_held(const std::string& to, int tensor, ir::ValueId v);
    void copy_spill(const std::string& spill, ir::ValueId v, const char* block, bool load, const At& at);
    [[nodiscard]] std::int64_t offset_in_spill(const plan::SpillSlot& slot, const At& at) const;
    void load_shifted(ir::ValueId v, Block block);
    /// The sign of the way to the next chunk: scans of adjoint states go from the last chunk to the first.
    const char* onwards() const;
    /// The next chunk's rows are on their way while this one is computed; threads take neighbouring chunks.
    void ask_for_next(const ir::Type& type, int tensor, const std::string& pointer, bool write);
    void request(std::string line);
    /// The arguments that both ends of a row loop's tensor share.
    [[nodiscard]] std::string rows_arguments(ir::ValueId v, const std::string& tensor, int slot) const;
    [[nodiscard]] Block ahead(ir::ValueId v, const Place& place) const;

    [[nodiscard]] const plan::TensorSlot& slot(int index) const {
        return plan_.tensors[static_cast<std::size_t>(index)];
    }
    /// A block that is no token's, of a tensor whose axes before `leading` are not its own.
    [[nodiscard]] Block whole(ir::ValueId v, int tensor, std::size_t leading, std::string type, std::string memory,
                              std::string pad) const;
    /// Whether the kernel's tasks have a part each of an axis.
    [[nodiscard]] bool is_cut(const Dim& axis) const {
        return c_.kernel.cut.count + c_.kernel.transition_tiles > 1 && axis.symbol == c_.kernel.cut.axis;
    }
    struct TokenTensor {
        std::string pointer;
        int tensor;
        bool constant;
    };
    [[nodiscard]] std::vector<TokenTensor> token_inputs(
        const std::function<bool(ir::ValueId)>& skipped = nullptr) const;
    [[nodiscard]] std::vector<TokenTensor> token_outputs() const;
    void declare_token_tensor(const TokenTensor& t, const char* task = "at");
    void keep_addresses();

    Context& c_;
    Writer& out_;
    const plan::Plan& plan_;
    const ir::Function& fn_;
    std::size_t products_ = 0, computed_ = 0, written_ = 0;  ///< of the chunk's products, of the requests
    std::vector<std::string> requests_;
};

}  // namespace forge::emit
