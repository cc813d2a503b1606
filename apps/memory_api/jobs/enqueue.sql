-- Tickets into the queue, in the caller's transaction. $1 their payloads, $2 since when each stands in line, $3 how long until
-- they are due, or null: at once.
insert into pgqueuer (priority, entrypoint, payload, execute_after, status)
select 0, 'run', payload, coalesce(now() + $3::interval, least(begun, clock_timestamp())), 'queued'
from unnest($1::bytea[], $2::timestamptz[]) with ordinality as ticket (payload, begun, place)
order by place
