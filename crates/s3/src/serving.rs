//! Serving: one request, from its head to the body of its answer.
//!
//! How: what it is about ([`Target`]) decides.
//! - A read of an object has a plan ([`Plan`]): it is answered from the cache, at once or after the store was asked whether it may be, or passed
//!   on, and its answer kept on its way.
//! - What may change something is passed on, and unlinks what it names before it leaves; its change ends with its answer's last byte. An upload
//!   may be kept on its way ([`crate::through`]).
//! - All else is passed on.
//!
//! Of several reads of the same that find nothing, one goes to the store at first; the others are confirmed then, and get its
//! bytes as they come ([`crate::flight`]).
//!
//! `X-Cache` tells which: HIT (from the cache), REVALIDATED (likewise; the store was asked, though its yes is believed for a while otherwise),
//! PARTIAL (some of it from the store), MISS (from the store, and kept), BYPASS (from the store; `Cache-Status` says why nothing is
//! kept).

use crate::backend::{BackEnd, BackEndError};
use crate::body::{Body, streamed, whole};
use crate::cached::Cached;
use crate::counts::{CACHE_STATUS, Counts, Purpose, Source, X_CACHE};
use crate::events;
use crate::failure::{self, Failure};
use crate::fetch::Origin;
use crate::flight::Lead;
use crate::hit::Hit;
use crate::keep::Keeping;
use crate::multipart::{Completion, Copied};
use crate::outgoing::{Outgoing, Signatures};
use crate::passing::Passing;
use crate::reading::Arriving;
use crate::small::SMALL_BYTES_MAX;
use crate::through::{Through, Upload};
use crate::verify::{self, unix_s};
use forebay_objects::{
    Change, Completing, Confirmed, Gate, Held, Kept, Learned, Learning, Note, Plan, Read, Refused, Target, Token, Verb,
    Who, Write, WriteMode, lifetime_s,
};
use http_body_util::{BodyExt, Either};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{AGE, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, IF_NONE_MATCH};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The body of a request that HTTP's library carries to the store: the client's.
pub(crate) type Sent = Either<Outgoing, Either<Through, Copied>>;

/// An answer's first bytes are on their way when its head is here: no more than these are not worth to be called off, since that ends the connection.
const COMES_AT_ONCE_BYTES: u64 = 128 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Names that buckets may stand before in `Host`.
    pub(crate) names: Vec<String>,
    /// Where it is known who may what.
    pub(crate) gate: Option<Gate>,
    pub(crate) backend: Arc<BackEnd<Sent>>,
    pub(crate) cached: Option<Arc<Cached>>,
    pub(crate) counts: Arc<Counts>,
    /// Of who tells of changes past the gateway.
    pub(crate) events_token: Option<Token>,
}

/// A read of an object, on its way.
struct Asked {
    cached: Arc<Cached>,
    backend: Arc<BackEnd<Sent>>,
    read: Read,
    /// The client's, as it came; it has no body.
    head: Parts,
}

impl Serving {
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let since = Instant::now();
        let came = self.target(&request);
        if let (Some(cached), Some(token)) = (&self.cached, &self.events_token)
            && events::is_for(&came)
        {
            return events::take(cached, token, request).await;
        }
        let path = request.uri().path().to_owned();
        let (target, answer) = match self.let_in(request) {
            Ok((request, rewritten)) => {
                let target = rewritten.unwrap_or(came);
                let answer = self.answered(&target, request).await;
                (target, answer.unwrap_or_else(|error| self.no_answer(&error, &path)))
            }
            Err(why) => {
                tracing::debug!(?why, "not let in");
                (came, failure::refused(why, &path))
            }
        };
        let status = answer.status().as_u16();
        let (answer, reason) = self.counts.answered(target.verb, since.elapsed(), answer);
        if let (Some(cached), Some(reason), Some(name), Verb::Read { .. }) =
            (&self.cached, reason, target.name, target.verb)
        {
            let at_ns = cached.now_ns();
            cached.notes().add(Note { name, at_ns, reason, status });
        }
        answer
    }

    fn target(&self, request: &Request<Incoming>) -> Target {
        let uri = request.uri();
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        Target::of(request.method(), uri.path(), uri.query(), host, &self.names)
    }

    /// A request that may be served; where the gate rewrites it, what it is about then.
    fn let_in(&self, request: Request<Incoming>) -> Result<(Request<Incoming>, Option<Target>), Refused> {
        let Some(gate) = &self.gate else { return Ok((request, None)) };
        let request = verify::let_in(gate, request)?;
        let target = self.target(&request);
        Ok((request, Some(target)))
    }

    async fn answered(&self, target: &Target, request: Request<Incoming>) -> Result<Response<Body>, BackEndError> {
        let Some(cached) = &self.cached else { return self.pass(request, "off").await };
        match Read::of(target, request.uri().query(), request.headers()) {
            Some(read) => self.read(Arc::clone(cached), read, request).await,
            None if target.verb == Verb::Change => self.change(cached, target, request).await,
            None => self.pass(request, "not-an-object").await,
        }
    }

    fn no_answer(&self, error: &BackEndError, path: &str) -> Response<Body> {
        match error {
            BackEndError::Address { .. } => failure::answer(Failure::BadRequest, path, &error.to_string()),
            BackEndError::Untrusted { .. } | BackEndError::Trust(_) => {
                failure::answer(Failure::BackEndUntrusted, path, &error.to_string())
            }
            BackEndError::Away { .. } | BackEndError::Late { .. } => {
                tracing::debug!(%error, "no answer");
                failure::answer(Failure::BackEndAway, path, self.backend.address())
            }
        }
    }

    async fn pass(&self, request: Request<Incoming>, why: &'static str) -> Result<Response<Body>, BackEndError> {
        self.send(outgoing(request), why).await
    }

    async fn send(&self, request: Request<Outgoing>, why: &'static str) -> Result<Response<Body>, BackEndError> {
        match self.asked(request.map(Either::Left)).await? {
            Ok(answer) => Ok(bypassed(answer.map(|body| streamed(Passing::library(body))), why)),
            Err(faulty) => Ok(faulty),
        }
    }

    /// What the store answers to a request with a body; or what the gateway does, when that was not what its signature says.
    async fn asked(&self, request: Request<Sent>) -> Result<Result<Response<Incoming>, Response<Body>>, BackEndError> {
        let signatures = request.extensions().get::<Arc<Signatures>>().cloned();
        let path = request.uri().path().to_owned();
        let answer = self.backend.ask(request).await;
        self.counts.asked(Purpose::Pass, &answer);
        match (answer, signatures.and_then(|it| it.fault())) {
            // The store was told nothing that it could answer.
            (Err(_), Some(fault)) => Ok(Err(failure::faulty(fault, &path))),
            (answer, _) => answer.map(Ok),
        }
    }

    /// Whatever it may change is asked for anew from here on, and what was asked before it ended is not believed.
    async fn change(
        &self,
        cached: &Arc<Cached>,
        target: &Target,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, BackEndError> {
        let uri = request.uri().clone();
        let mode = match WriteMode::take(&uri, request.headers_mut()) {
            Ok(asked) => mode(cached, target, asked),
            Err(unknown) => return Ok(failure::answer(Failure::BadRequest, uri.path(), &unknown.to_string())),
        };
        let change = cached.objects().changing(target);
        let changing = Changing { cached: Arc::clone(cached), change };
        let completing = cached.objects().completing(cached.now_ns(), request.method(), target, uri.query());
        let answer = match (mode, completing) {
            (Ok(_), Some(completing)) => self.complete(cached, completing, request).await?,
            (mode, _) => self.changed(cached, target, mode, request).await?,
        };
        // A store may answer 200 before it is done, and say in the body how it went.
        Ok(answer.map(|body| Until { body, _changing: changing }.boxed_unsync()))
    }

    async fn changed(
        &self,
        cached: &Arc<Cached>,
        target: &Target,
        mode: Result<WriteMode, &'static str>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, BackEndError> {
        match mode {
            Err(why) => self.pass(request, why).await,
            Ok(WriteMode::Around) => self.pass(request, "change").await,
            Ok(WriteMode::Through) => self.through(cached, target, request).await,
        }
    }

    /// What completes an upload of which parts were kept.
    async fn complete(
        &self,
        cached: &Arc<Cached>,
        completing: Completing,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, BackEndError> {
        let (head, body) = outgoing(request).into_parts();
        let (completion, body) = Completion::begin(cached, completing, body);
        let answer = match self.asked(Request::from_parts(head, Either::Right(Either::Right(body)))).await? {
            Ok(answer) => bypassed(answer.map(|body| streamed(Passing::library(body))), "change"),
            Err(faulty) => return Ok(faulty),
        };
        let (head, body) = answer.into_parts();
        let body = completion.answered(head.status, &head.headers, body).boxed_unsync();
        Ok(Response::from_parts(head, body))
    }

    /// An upload, if it is one; kept on its way, if it can be.
    async fn through(
        &self,
        cached: &Arc<Cached>,
        target: &Target,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, BackEndError> {
        let write = match Write::of(request.method(), target, request.uri().query(), request.headers()) {
            Ok(write) => write,
            Err(why) => return self.pass(request, why).await,
        };
        let (head, body) = outgoing(request).into_parts();
        let (upload, body) = match Upload::begin(cached, &write, body) {
            Ok(begun) => begun,
            Err((why, body)) => return self.send(Request::from_parts(head, body), why).await,
        };
        let answer = match self.asked(Request::from_parts(head, Either::Right(Either::Left(body)))).await? {
            Ok(answer) => answer,
            Err(faulty) => return Ok(faulty),
        };
        let kept = upload.answered(answer.status(), answer.headers()).await;
        Ok(match kept {
            Ok(()) => stored(answer.map(|body| streamed(Passing::library(body)))),
            Err(why) => bypassed(answer.map(|body| streamed(Passing::library(body))), why),
        })
    }

    async fn read(
        &self,
        cached: Arc<Cached>,
        read: Read,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, BackEndError> {
        let mut plan = plan_of(&cached, &read, &request);
        if let Plan::Pass(why) = plan {
            if !request.body().is_end_stream() {
                return self.pass(request, why).await;
            }
            let answer = self.backend.read(request.into_parts().0).await;
            self.counts.asked(Purpose::Pass, &answer);
            return Ok(bypassed(answer?.map(unkept), why));
        }
        let mut leading = None;
        let question = || (read.name.clone(), read.version_id.clone(), read.asked);
        let is_alone = read.head || !read.conditions.only_name_a_version();
        let mut here = here_of(&cached, &read, &plan).await;
        if matches!(here, Here::No) && !is_alone {
            match cached.flights.lead(question()).await {
                Lead::Own(own) => leading = Some(own),
                Lead::Other => {
                    self.counts.waits();
                    plan = plan_of(&cached, &read, &request);
                    here = here_of(&cached, &read, &plan).await;
                }
            }
        }
        let asked = Asked { cached, backend: Arc::clone(&self.backend), read, head: request.into_parts().0 };
        let answer = match plan {
            Plan::Pass(_) => unreachable!("it is passed on"),
            Plan::Learn(learning) => self.learn(asked, learning).await,
            Plan::Confirm(held) | Plan::Serve(held, _) if matches!(here, Here::No) => {
                self.learn(asked, held.learning).await
            }
            Plan::Confirm(held) => self.confirm(asked, held, here).await,
            Plan::Serve(held, confirmed_ns) => {
                let age_s = asked.cached.now_ns().saturating_sub(confirmed_ns) / 1_000_000_000;
                let mut answer = asked.answer(held, None, here, "HIT");
                answer.headers_mut().insert(AGE, HeaderValue::from(age_s));
                Ok(answer)
            }
        };
        // Others may look now.
        drop(leading);
        answer
    }

    /// As it came; what is answered is kept.
    async fn learn(&self, asked: Asked, learning: Learning) -> Result<Response<Body>, BackEndError> {
        let answer = self.backend.read(asked.head.clone()).await;
        self.counts.asked(Purpose::Pass, &answer);
        Ok(asked.learned(answer?, learning).await)
    }

    /// With the condition that it is another version.
    async fn confirm(&self, asked: Asked, held: Held, here: Here) -> Result<Response<Body>, BackEndError> {
        let mut request = asked.head.clone();
        let Ok(etag) = HeaderValue::from_str(&held.etag) else { return self.learn(asked, held.learning).await };
        request.headers.insert(IF_NONE_MATCH, etag);
        let answer = self.backend.read(request).await;
        self.counts.asked(Purpose::Confirm, &answer);
        let answer = answer?;
        if answer.status() == StatusCode::PRECONDITION_FAILED {
            // It may be for the condition that was added, if the client has one of its own.
            return self.learn(asked, held.learning).await;
        }
        if answer.status() != StatusCode::NOT_MODIFIED {
            return Ok(asked.learned(answer, held.learning).await);
        }
        let confirmed = asked.cached.objects().confirmed(&asked.read, &held, answer.headers());
        match confirmed {
            Confirmed::Serve => {
                let told = when_confirmed(&held.learning);
                Ok(asked.answer(held, Some(answer.headers()), here, told))
            }
            Confirmed::Again => self.learn(asked, held.learning).await,
        }
    }
}

impl Asked {
    /// From the cache, and from the store what it lacks.
    fn answer(self, held: Held, confirmation: Option<&HeaderMap>, here: Here, told: &'static str) -> Response<Body> {
        let told = if matches!(here, Here::Part) { "PARTIAL" } else { told };
        let (status, part, is_head) = (held.status, held.part.clone(), self.read.head);
        if status == StatusCode::PRECONDITION_FAILED && !is_head {
            return self::told(failure::answer(Failure::PreconditionFailed, self.head.uri.path(), ""), told);
        }
        let headers = held.told(&self.read, confirmation);
        let body = match here {
            _ if is_head || !held.has_body() => whole(""),
            Here::AtHand(bytes) => {
                self.cached.counts.sent(Source::Copy, part.end - part.start);
                whole(bytes.slice(part.start as usize..part.end as usize))
            }
            Here::All | Here::Part | Here::No => {
                let origin = Origin { cached: self.cached, backend: self.backend, held, head: self.head };
                streamed(Hit::new(origin, part.clone()))
            }
        };
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        if status != StatusCode::PRECONDITION_FAILED {
            *answer.headers_mut() = headers;
        }
        if is_head && status.is_success() {
            answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
        }
        self::told(answer, told)
    }

    /// From the store, and kept if it may be.
    async fn learned(self, answer: Response<Arriving>, learning: Learning) -> Response<Body> {
        let learned = self.cached.objects().learned(&self.read, &learning, answer.status(), answer.headers());
        let kept = match learned {
            Learned::Keep(kept) => kept,
            Learned::Known => return told(answer.map(unkept), "MISS"),
            Learned::Not(why) => return bypassed(answer.map(unkept), why),
        };
        if let Some((held, here)) = self.found_here(&kept, &learning, answer.status()).await {
            let told = when_confirmed(&learning);
            return self.answer(held, Some(answer.headers()), here, told);
        }
        let keeping = Keeping::new(self.cached, kept);
        told(answer.map(|body| streamed(Passing::new(body, Some(keeping)))), "MISS")
    }

    /// What the store is about to send, and how much of it is here, if that is enough: it was uploaded through, or something else was told with it. Then
    /// the store need not send it.
    async fn found_here(&self, kept: &Kept, learning: &Learning, status: StatusCode) -> Option<(Held, Here)> {
        if !kept.is_known || kept.part.end - kept.part.start <= COMES_AT_ONCE_BYTES {
            return None;
        }
        let held = self.cached.objects().here(&self.read, learning, kept, status)?;
        let here = much_of(&self.cached, &held).await;
        (!matches!(here, Here::No)).then_some((held, here))
    }
}

/// How much of an answer is here, or on its way.
#[derive(Debug)]
enum Here {
    /// A copy of the whole object.
    AtHand(Bytes),
    All,
    /// At least half.
    Part,
    No,
}

async fn here_of(cached: &Cached, read: &Read, plan: &Plan) -> Here {
    let (Plan::Confirm(held) | Plan::Serve(held, _)) = plan else { return Here::No };
    if read.head || !held.has_body() {
        return Here::All;
    }
    if held.bytes <= SMALL_BYTES_MAX {
        return cached.at_hand(held).await.map_or(Here::No, Here::AtHand);
    }
    much_of(cached, held).await
}

async fn much_of(cached: &Cached, held: &Held) -> Here {
    let part = held.start + held.part.start..held.start + held.part.end;
    let asked = part.end - part.start;
    let missing = cached.missing(&part).await;
    if missing == 0 {
        return Here::All;
    }
    let missing = missing.saturating_sub(cached.flights.coming(held.id, &held.part));
    match missing {
        0 => Here::All,
        missing if missing * 2 <= asked => Here::Part,
        _ => Here::No,
    }
}

/// How a change is cached: as it asks for itself, or by the object's policy. Why not, if that forbids it.
fn mode(cached: &Cached, target: &Target, asked: Option<WriteMode>) -> Result<WriteMode, &'static str> {
    let Some(name) = &target.name else { return Ok(WriteMode::Around) };
    let policy = cached.objects().policy(name);
    if policy.is_cached { Ok(asked.unwrap_or(policy.write)) } else { Err("policy") }
}

/// With its body as it leaves.
fn outgoing(request: Request<Incoming>) -> Request<Outgoing> {
    let signatures = request.extensions().get::<Arc<Signatures>>().cloned();
    request.map(|body| Outgoing::new(body, signatures))
}

fn plan_of(cached: &Cached, read: &Read, request: &Request<Incoming>) -> Plan {
    let mut objects = cached.objects();
    let who = (objects.policy(&read.name).metadata_ttl_ns > 0).then(|| {
        let (uri, headers) = (request.uri(), request.headers());
        (Who::of(request.method(), uri, headers), lifetime_s(uri, headers, unix_s()))
    });
    objects.plan(cached.now_ns(), read, who)
}

fn unkept(body: Arriving) -> Body {
    streamed(Passing::new(body, None))
}

/// What is told of an answer from the cache that the store confirmed.
fn when_confirmed(learning: &Learning) -> &'static str {
    if learning.is_believed() { "REVALIDATED" } else { "HIT" }
}

fn bypassed(answer: Response<Body>, why: &'static str) -> Response<Body> {
    let mut answer = told(answer, "BYPASS");
    let status = format!("forebay; fwd=bypass; detail={why}");
    answer.headers_mut().insert(CACHE_STATUS, HeaderValue::try_from(status).expect("a word"));
    answer
}

/// What was uploaded is kept.
fn stored(answer: Response<Body>) -> Response<Body> {
    let mut answer = told(answer, "BYPASS");
    answer.headers_mut().insert(CACHE_STATUS, HeaderValue::from_static("forebay; fwd=method; stored"));
    answer
}

fn told(mut answer: Response<Body>, told: &'static str) -> Response<Body> {
    answer.headers_mut().insert(X_CACHE, HeaderValue::from_static(told));
    answer
}

/// A change under way; it ends when this is dropped.
struct Changing {
    cached: Arc<Cached>,
    change: Option<Change>,
}

impl Drop for Changing {
    fn drop(&mut self) {
        if let Some(change) = self.change.take() {
            self.cached.objects().changed(change);
        }
    }
}

/// A body that ends a change.
struct Until {
    body: Body,
    _changing: Changing,
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = crate::body::Failed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
