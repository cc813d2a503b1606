-- A ticket that is to be delivered again. $1 which, $2 after how long, $3 who holds it.
update pgqueuer
set status = 'queued', queue_manager_id = null, attempts = attempts + 1, updated = now(), execute_after = now() + $2::interval
where id = $1 and queue_manager_id = $3
