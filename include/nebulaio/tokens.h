// nebulaio/tokens.h: tokens in C++ for S3 requests that another library sends: one server moves
// their bodies by RDMA from and to this program's memory. Header only, C++17; link with `pkg-config
// --libs nebulaio`.
//
//	nebulaio::TokenMinter minter("http://192.168.100.1:9000");
//	nebulaio::Token token = minter.mint(NEB_GET_OBJECT, buffer, bytes);
//	// ... an S3 library sends GET with the signed header token.header(): token.text() ...
//	if (no_answer)
//		token.failed();
//
// ERRORS are nebulaio::Error with the errno of nebulaio.h's neb_minter_ and neb_token_ functions.
//
// THREADS. Any thread may use a minter and its tokens at any time.
//
// MEMORY. Do not free, read or change a token's window before the request was answered, or failed()
// has returned. Memory of register_memory() makes a token faster, and its key covers all of that
// memory. Tokens and registrations keep the minter alive as long as they live themselves.
//
// ENVIRONMENT: NEBULAIO_RDMA_DEVICE_NAME, NEBULAIO_CONNECT_TO and the keys, as in rdma.h.
#ifndef NEBULAIO_TOKENS_H
#define NEBULAIO_TOKENS_H

#include <nebulaio/rdma.h>

namespace nebulaio
{

namespace detail
{
using Minter = std::shared_ptr<neb_minter>;
}

// A token of one request: its end releases it. Can be moved, not copied.
class Token
{
      public:
	Token() = default;
	Token(detail::Minter minter, neb_op op, const void *data, std::size_t bytes)
	{
		char text[NEB_TOKEN_BYTES];
		int ret = neb_token_mint(minter.get(), op, data, bytes, text);

		if (ret)
			throw Error("a token of " + std::to_string(bytes) + " bytes", ret);
		minter_ = std::move(minter);
		text_ = text;
	}
	Token(Token &&other) noexcept
	    : minter_(std::move(other.minter_)), text_(std::move(other.text_))
	{
	}
	Token &operator=(Token &&other) noexcept
	{
		std::swap(minter_, other.minter_);
		std::swap(text_, other.text_);
		return *this;
	}
	Token(const Token &) = delete;
	Token &operator=(const Token &) = delete;
	~Token()
	{
		if (minter_)
			neb_token_release(minter_.get(), text_.c_str());
	}
	// The header, and its value; the request's signature must cover it.
	static const char *header() noexcept
	{
		return "x-amz-rdma-token";
	}
	const std::string &text() const noexcept
	{
		return text_;
	}
	// The request got no answer: when this returns, the server can neither write to the window
	// nor read from it. Other requests whose tokens name the same queue pair fail, too.
	void failed()
	{
		if (minter_)
			neb_token_failed(minter_.get(), text_.c_str());
	}

      private:
	detail::Minter minter_;
	std::string text_;
};

// Registers the caller's memory for many tokens, until this object ends: then the server's access
// ends. Can be moved, not copied.
class TokenMemory
{
      public:
	TokenMemory() = default;
	TokenMemory(detail::Minter minter, void *data, std::size_t bytes)
	{
		int ret = neb_minter_register(minter.get(), data, bytes);

		if (ret)
			throw Error("registering " + std::to_string(bytes) + " bytes", ret);
		minter_ = std::move(minter);
		data_ = data;
	}
	TokenMemory(TokenMemory &&other) noexcept
	    : minter_(std::move(other.minter_)), data_(std::exchange(other.data_, nullptr))
	{
	}
	TokenMemory &operator=(TokenMemory &&other) noexcept
	{
		std::swap(minter_, other.minter_);
		std::swap(data_, other.data_);
		return *this;
	}
	TokenMemory(const TokenMemory &) = delete;
	TokenMemory &operator=(const TokenMemory &) = delete;
	~TokenMemory()
	{
		if (minter_)
			neb_minter_unregister(minter_.get(), data_);
	}

      private:
	detail::Minter minter_;
	void *data_ = nullptr;
};

// Mints tokens that one server can use. Can be moved, not copied.
class TokenMinter
{
      public:
	// One endpoint, of http:// or https://. With require_encryption an Error: the bytes that a
	// token moves are not encrypted. Connects nothing yet.
	explicit TokenMinter(const std::string &endpoint, Options options = Options())
	{
		neb_minter *minter = nullptr;
		int ret;

		detail::complete(options);
		const neb_options native = detail::native(options, endpoint);
		ret = neb_minter_open(&native, &minter);
		if (ret)
			throw Error("tokens for " + endpoint, ret);
		minter_ = detail::Minter(minter, neb_minter_close);
	}
	TokenMinter(TokenMinter &&) noexcept = default;
	TokenMinter &operator=(TokenMinter &&) noexcept = default;
	TokenMinter(const TokenMinter &) = delete;
	TokenMinter &operator=(const TokenMinter &) = delete;

	// Whether tokens can be minted now: connects a queue pair if there is none. *why, where it
	// is given, becomes the reason, or empty.
	bool available(std::string *why = nullptr)
	{
		char text[200] = "";
		int ret = neb_minter_available(native(), text, sizeof(text));

		if (why)
			*why = text;
		return ret == 0;
	}
	// op: NEB_GET_OBJECT, NEB_PUT_OBJECT or NEB_UPLOAD_PART; the key allows no more than that.
	Token mint(neb_op op, const void *data, std::size_t bytes)
	{
		return native(), Token(minter_, op, data, bytes);
	}
	TokenMemory register_memory(void *data, std::size_t bytes)
	{
		return native(), TokenMemory(minter_, data, bytes);
	}
	neb_minter *native() const
	{
		if (!minter_)
			throw Error("this minter was moved away", -EINVAL);
		return minter_.get();
	}

      private:
	detail::Minter minter_;
};

} // namespace nebulaio

#endif
