-- Tickets into the queue, in the caller's transaction. $1 their payloads, $2 how long until they are due.
insert into pgqueuer (priority, entrypoint, payload, execute_after, status)
select 0, 'run', payload, now() + $2::interval, 'queued'
from unnest($1::bytea[]) with ordinality as ticket (payload, place)
order by place
