//! Reading a request's body within its limits.

use bytes::{Bytes, BytesMut};
use counterfoil_pg::TenantId;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Body;

use crate::codes;
use crate::limits::{Limits, SMALL};
use crate::problem::{Problem, Refused};
use crate::shares::{Share, Shares, Spent};

/// Who sends a body that is no tenant's: an operator. No tenant has this number.
pub(crate) const NOBODY: TenantId = TenantId(0);

/// The memory that large bodies may take, over all connections.
pub(crate) fn budget(limits: &Limits) -> Shares {
    Shares::new(limits.in_memory, limits.in_memory / 2)
}

/// A body, and its share of the budget until it is dropped.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _share: Option<Share>,
}

/// Reads the whole body, or says why not. A body that is not read to its end goes on being thrown
/// away in the background.
pub(crate) async fn read<B>(
    mut body: B,
    limits: &Limits,
    budget: &Shares,
    tenant: TenantId,
    expects: bool,
) -> Result<Whole, Refused>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let result = if body.size_hint().lower() > limits.request as u64 {
        Err(too_large(limits))
    } else {
        match tokio::time::timeout(limits.body_timeout, collect(&mut body, limits, budget, tenant)).await {
            Ok(result) => result,
            Err(_) => {
                let detail = format!("the body was not whole after {} s", limits.body_timeout.as_secs());
                Err(Problem::new(
                    StatusCode::REQUEST_TIMEOUT,
                    codes::BODY_TIMEOUT,
                    "",
                    detail,
                ))
            }
        }
    };
    if result.is_err() {
        leave(body, limits, expects);
    }
    result
}

/// Lets go of a body that nobody is going to read.
///
/// Closing the connection on a caller in mid-sentence resets it, and then most callers never see
/// the answer; so what still comes is read and dropped, up to a bound. A caller who waits for
/// `100 Continue` is not speaking: it gets the answer instead.
pub(crate) fn leave<B>(mut body: B, limits: &Limits, expects: bool)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    if expects || body.is_end_stream() {
        return;
    }
    let (bound, timeout) = (limits.discard, limits.body_timeout);
    tokio::spawn(async move {
        let discard = async {
            let mut seen = 0;
            while let Some(Ok(frame)) = body.frame().await {
                seen += frame.data_ref().map_or(0, Bytes::len);
                if seen > bound {
                    break;
                }
            }
        };
        // Whether it came to its end or not, the connection closes or goes on when `body` drops.
        let _ = tokio::time::timeout(timeout, discard).await;
    });
}

async fn collect<B>(body: &mut B, limits: &Limits, budget: &Shares, tenant: TenantId) -> Result<Whole, Refused>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut share = None;
    // Taken before any of it is asked for: who waits for `100 Continue` need not send it in vain.
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    charge(&mut share, budget, tenant, promised)?;
    let Some(first) = data(body).await? else {
        return Ok(Whole {
            bytes: Bytes::new(),
            _share: None,
        });
    };
    if first.len() > limits.request {
        return Err(too_large(limits));
    }
    if body.is_end_stream() {
        charge(&mut share, budget, tenant, first.len())?;
        // Nearly every request: one piece, not copied.
        return Ok(Whole {
            bytes: first,
            _share: share,
        });
    }
    let mut whole = BytesMut::with_capacity(promised.max(first.len()));
    let mut next = Some(first);
    while let Some(piece) = next {
        let length = whole.len() + piece.len();
        if length > limits.request {
            return Err(too_large(limits));
        }
        charge(&mut share, budget, tenant, length)?;
        whole.extend_from_slice(&piece);
        next = data(body).await?;
    }
    Ok(Whole {
        bytes: whole.freeze(),
        _share: share,
    })
}

/// Counts a body of this many bytes, if it is large, in steps of what small ones may have.
fn charge(share: &mut Option<Share>, budget: &Shares, tenant: TenantId, length: usize) -> Result<(), Refused> {
    if length <= SMALL {
        return Ok(());
    }
    let amount = length.next_multiple_of(SMALL);
    match share {
        Some(share) => share.grow(amount),
        None => budget.take(tenant, amount).map(|taken| *share = Some(taken)),
    }
    .map_err(overloaded)
}

/// The next piece of data; trailers are of no interest.
async fn data<B>(body: &mut B) -> Result<Option<Bytes>, Refused>
where
    B: Body<Data = Bytes> + Unpin,
{
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            // Nobody is there to read this, unless only half of the connection is gone.
            Some(Err(_)) => {
                return Err(Problem::bad_request(
                    codes::BODY_INCOMPLETE,
                    "",
                    "the connection ended before the body did",
                ));
            }
        }
    }
}

fn too_large(limits: &Limits) -> Refused {
    let detail = format!("the request is larger than {} bytes; send it in parts", limits.request);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, codes::REQUEST_TOO_LARGE, "", detail)
}

fn overloaded(spent: Spent) -> Refused {
    let mut problem = match spent {
        Spent::Own => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            codes::TOO_MANY_BYTES,
            "",
            "the tenant's large requests that are here take up all it may have at once; nothing was done, send it again",
        ),
        Spent::All => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            codes::OVERLOADED,
            "",
            "the server holds too many large requests already; nothing was done, send it again",
        ),
    };
    problem.extra.retry_after = Some(std::time::Duration::from_secs(1));
    problem
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use std::convert::Infallible;
    use std::time::Duration;

    fn limits() -> Limits {
        Limits {
            request: 1_000,
            in_memory: 8 * SMALL,
            body_timeout: Duration::from_secs(5),
            ..Limits::default()
        }
    }

    fn pieces(of: usize, count: usize) -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static {
        let piece = Bytes::from(vec![b'x'; of]);
        StreamBody::new(stream::iter((0..count).map(move |_| Ok(Frame::data(piece.clone())))))
    }

    async fn read_of<B>(body: B, limits: &Limits, budget: &Shares) -> Result<Whole, Refused>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        read(body, limits, budget, TenantId(7), false).await
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let bytes = Bytes::from_static(b"{}");
        let whole = read_of(Full::new(bytes.clone()), &limits(), &super::budget(&limits()))
            .await
            .unwrap();
        assert_eq!(whole.bytes.as_ptr(), bytes.as_ptr());
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let whole = read_of(pieces(300, 3), &limits(), &super::budget(&limits()))
            .await
            .unwrap();
        assert_eq!(whole.bytes.len(), 900);
    }

    #[tokio::test]
    async fn too_large_a_body_is_413_whether_it_says_so_or_not() {
        let budget = super::budget(&limits());
        let said = read_of(Full::new(Bytes::from(vec![b'x'; 1_001])), &limits(), &budget)
            .await
            .unwrap_err();
        let streamed = read_of(pieces(100, 1_000_000), &limits(), &budget).await.unwrap_err();
        let at_once = read_of(pieces(1_001, 1), &limits(), &budget).await.unwrap_err();
        for problem in [said, streamed, at_once] {
            assert_eq!((problem.status.as_u16(), &*problem.code), (413, "request_too_large"));
        }
    }

    /// `in_memory` is eight times what counts as small, so a tenant has four times that.
    #[tokio::test]
    async fn large_bodies_share_a_budget_and_give_it_back() {
        let limits = Limits {
            request: 4 * SMALL,
            ..limits()
        };
        let budget = super::budget(&limits);
        let of = |tenant, body| read(body, &limits, &budget, TenantId(tenant), false);
        let first = of(7, pieces(SMALL, 3)).await.unwrap();
        let problem = of(7, pieces(SMALL, 3)).await.unwrap_err();
        assert_eq!((problem.status.as_u16(), &*problem.code), (429, "too_many_bytes"));
        let _second = of(8, pieces(SMALL, 4)).await.unwrap();
        let problem = of(9, pieces(SMALL, 2)).await.unwrap_err();
        assert_eq!((problem.status.as_u16(), &*problem.code), (503, "overloaded"));
        // Small ones always pass.
        let _third = of(9, pieces(SMALL, 1)).await.unwrap();
        drop(first);
        assert_eq!(of(7, pieces(SMALL, 3)).await.unwrap().bytes.len(), 3 * SMALL);
    }

    #[tokio::test]
    async fn a_large_body_in_one_piece_is_counted_too() {
        let limits = Limits {
            request: 4 * SMALL,
            ..limits()
        };
        let budget = super::budget(&limits);
        let body = || Full::new(Bytes::from(vec![b'x'; 3 * SMALL]));
        let first = read_of(body(), &limits, &budget).await.unwrap();
        assert_eq!(
            read_of(body(), &limits, &budget).await.unwrap_err().code,
            "too_many_bytes"
        );
        drop(first);
        read_of(body(), &limits, &budget).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let problem = read_of(body, &limits(), &super::budget(&limits())).await.unwrap_err();
        assert_eq!((problem.status.as_u16(), &*problem.code), (408, "body_timeout"));
    }
}
