-- name: take_tickets
-- Take due tickets. The tenant with the fewest taken tickets comes first, however many tickets the other tenants have queued.
-- A lane holds the tickets of one tenant. The recursive query finds the head of each lane in tickets_lane_due_at_idx, so the cost grows
-- with the number of tenants that have queued tickets and not with the number of tickets. Each row has the seconds until the next delayed
-- ticket is due; without a ticket to take, that is the only column of the only row.
--   $1 ID of the worker, $2 its slots, $3 slots that one tenant may use, $4 time without a heartbeat after which a worker is dead, $5 kind of slots,
--   $6 lanes of which nothing is taken now, $7 tickets that are taken of one lane at most
with recursive
abandoned as (  -- tickets of dead workers go back to their lanes and are taken at the next poll
    update tickets set taken_by = null, heartbeat_at = null
    where id in (
        select id from tickets
        where taken_by is not null and slots = $5 and heartbeat_at < now() - $4::interval
        order by heartbeat_at limit $2::bigint for update skip locked
    )
    returning id
),
taken_counts as materialized (
    select lane, count(*) by_all_workers, count(*) filter (where taken_by = $1::uuid) by_this_worker
    from tickets
    where taken_by is not null and slots = $5 and heartbeat_at >= now() - $4::interval
    group by lane
),
free_slots as materialized (select ($2::bigint - coalesce(sum(by_this_worker), 0))::bigint count from taken_counts),
lane_heads (lane, due_at, queued_at) as (
    (
        select lane, due_at, queued_at from tickets
        where taken_by is null and slots = $5 and (select count from free_slots) > 0
        order by lane, due_at limit 1
    )
    union all
    select next.lane, next.due_at, next.queued_at
    from lane_heads
    cross join lateral (
        select lane, due_at, queued_at from tickets t
        where t.taken_by is null and t.slots = $5 and t.lane > lane_heads.lane
        order by t.lane, t.due_at limit 1
    ) next
),
chosen_lanes as materialized (  -- two more than there are free slots, because another worker may lock tickets of the same lanes
    select h.lane, coalesce(t.by_all_workers, 0) taken_count, $3::bigint - coalesce(t.by_this_worker, 0) free_count
    from lane_heads h left join taken_counts t using (lane)
    where h.due_at <= now() and coalesce(t.by_this_worker, 0) < $3::bigint and h.lane <> all ($6::uuid[])
    order by taken_count, h.queued_at  -- not due_at: the queue position of a chain counts only within its tenant
    limit (select count from free_slots) + 2
),
locked_tickets as (
    select ticket.id, l.taken_count, ticket.due_at
    from chosen_lanes l
    cross join lateral (
        select t.id, t.due_at from tickets t
        where t.taken_by is null and t.slots = $5 and t.lane = l.lane and t.due_at <= now()
        order by t.due_at, t.id
        limit least(l.free_count, $7::bigint, (select ceil(max(f.count)::numeric / count(*))::bigint from free_slots f, chosen_lanes))
        for update skip locked
    ) ticket
),
chosen_tickets as (
    select id from locked_tickets order by taken_count, due_at, id limit (select count from free_slots)
),
taken_tickets as (
    update tickets t
    set taken_by = $1::uuid, taken_at = now(), heartbeat_at = now()
    from chosen_tickets c where t.id = c.id
    returning t.*
)
select t.id, t.lane, t.run_id, t.due_at, t.traceparent, n.due_in next_due_in
from (select extract(epoch from min(due_at) - now())::float8 due_in from lane_heads where due_at > now()) n
left join taken_tickets t on true
order by t.due_at, t.id

-- name: enqueue
-- Add tickets in the caller's transaction. They are due after :delay; without it, as old as :enqueued_at. :traceparent is the trace to
-- continue, or null.
insert into tickets (lane, run_id, slots, due_at, traceparent)
select lane, run_id, slots, coalesce(now() + cast(:delay as interval), least(enqueued_at, clock_timestamp())), :traceparent
from unnest(cast(:lanes as uuid[]), cast(:run_ids as uuid[]), cast(:slots as text[]), cast(:enqueued_at as timestamptz[])) with ordinality
    as ticket (lane, run_id, slots, enqueued_at, position)
order by position

-- name: queue_figures
-- Tickets by state: due, delayed (a retry that waits) and running, at most :limit of them. Age in seconds: since a ticket was due, since it
-- was queued, since it was taken. The ticket that is due the longest is found as in take_tickets, by the head of each lane.
with recursive
queued as materialized (select due_at, queued_at from tickets where taken_by is null limit :limit),
kinds (slots) as materialized (select unnest(cast(:slots as text[]))),
lane_heads (slots, lane, due_at) as (
    select k.slots, head.lane, head.due_at
    from kinds k
    cross join lateral (
        select t.lane, t.due_at from tickets t where t.taken_by is null and t.slots = k.slots order by t.lane, t.due_at limit 1
    ) head
    union all
    select h.slots, next.lane, next.due_at
    from lane_heads h
    cross join lateral (
        select t.lane, t.due_at from tickets t
        where t.taken_by is null and t.slots = h.slots and t.lane > h.lane
        order by t.lane, t.due_at limit 1
    ) next
)
select 'due' state, count(*) filter (where due_at <= now()) count,
       extract(epoch from now() - (select min(due_at) from lane_heads where due_at <= now()))::float8 age
from queued
union all
select 'delayed', count(*), extract(epoch from now() - min(queued_at))::float8 from queued where due_at > now()
union all
select 'running', count(*), extract(epoch from now() - min(taken_at))::float8 from tickets where taken_by is not null

-- name: return_tickets
-- Put taken tickets back into the queue. $1 their IDs, $2 the delay until each is due, $3 ID of the worker that took them.
update tickets t
set taken_by = null, heartbeat_at = null, due_at = now() + r.delay
from unnest($1::bigint[], $2::interval[]) r (id, delay)
where t.id = r.id and t.taken_by = $3

-- name: release_ticket
-- The worker that took the ticket of a run ends now. $1 lane, $2 run.
update tickets set taken_by = null, heartbeat_at = null where lane = $1 and run_id = $2

-- name: delete_tickets
delete from tickets where id = any($1::bigint[])

-- name: heartbeat
-- $1 ID of the worker.
update tickets set heartbeat_at = now() where taken_by = $1

-- name: count_queued_tickets
-- Count the queued tickets in the lanes from :first to :last, at most up to :limit, without deliveries.
select count(*) from (
    select from tickets
    where taken_by is null and slots in ('work', 'document') and lane between cast(:first as uuid) and cast(:last as uuid)
    limit :limit
) queued

-- name: mark_upkeep_due
-- A tenant is active: its upkeep is due within :due_after, also if it is running now.
insert into upkeep_schedule as u (lane, due_at) values (cast(:tenant as uuid), now() + cast(:due_after as interval))
on conflict (lane) do update
set active_at = now(), due_at = case when u.claimed_until > now() then excluded.due_at else least(u.due_at, excluded.due_at) end

-- name: claim_due_upkeep
-- Take the tenants whose upkeep is due, at most :limit, the longest due first. Each is taken once, until its upkeep ends or :duration has passed.
update upkeep_schedule u
set claimed_until = now() + cast(:duration as interval)
where u.lane in (
    select o.lane from upkeep_schedule o
    where o.due_at <= now() and (o.claimed_until is null or o.claimed_until <= now())
    order by o.due_at limit :limit for update skip locked
)
returning u.lane

-- name: finish_upkeep
-- The upkeep that started at :started_at is done, and due again at :due_at; for an active tenant after :due_after_quiet at the latest. A
-- tenant that was active meanwhile keeps its earlier time.
update upkeep_schedule u
set claimed_until = null,
    due_at = least(case when u.due_at > cast(:started_at as timestamptz) then u.due_at end,
                   case when u.active_at > now() - interval '2 days'
                        then least(cast(:due_at as timestamptz), now() + cast(:due_after_quiet as interval)) else :due_at end)
where u.lane = cast(:tenant as uuid)

-- name: drop_upkeep
-- An erased or suspended tenant has no upkeep.
delete from upkeep_schedule where lane = cast(:tenant as uuid)
